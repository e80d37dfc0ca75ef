{{/*
operator-common.alerts: alerts for any operator, as {rules: [...]}.

An alert must require action by a person; conditions that recover without help belong on the
dashboard. Expressions keep the labels namespace and job, which identify the installation. `runbook`
names the first thing to check; docs/howto/alerts.md has the rest.
*/}}
{{- define "operator-common.alerts" -}}
{{- $job := include "operator-common.seriesSelector" . -}}
{{- $id := include "operator-common.id" . -}}
rules:
  - alert: OperatorDown
    # The second half covers an installation without pods, for which `up` has no series.
    expr: max by (namespace, job) (up{ {{- $job -}} }) == 0 or absent(up{ {{- $job -}} })
    for: 10m
    labels:
      severity: critical
      operator: {{ $id }}
    annotations:
      summary: >-
        No replica of the operator {{ $id }}{{ "{{ with $labels.namespace }} in {{ . }}{{ end }}" }} responds to scrapes.
      description: Objects of {{ $id }} are not reconciled. The resources that they own keep running.
      runbook: >-
        kubectl get pods -A -l app.kubernetes.io/name={{ $id }}; check the Events of the pods and the
        log of the previous container (kubectl logs --previous).
  - alert: OperatorRestarting
    # Each start of a container has a new time; a pod of a rollout is a new series, so it is not counted.
    expr: max by (namespace, job) (changes(process_start_time_seconds{ {{- $job -}} }[1h])) > 3
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: A replica of {{ $id }} in {{ "{{ $labels.namespace }}" }} has restarted more than three times in an hour.
      description: >-
        The replicas that run do the work, so objects are still reconciled if there is a standby.
      runbook: >-
        kubectl logs -n {{ "{{ $labels.namespace }}" }} deploy/{{ include "operator-common.fullname" . }} --previous: the last line says why the
        process ended. If there is none, kubectl describe pod names the reason, often OOMKilled: increase resources.limits.memory.
  - alert: OperatorNoLeader
    expr: max by (namespace, job) (leader_election_master_status{ {{- $job -}} }) == 0
    for: 5m
    labels:
      severity: critical
      operator: {{ $id }}
    annotations:
      summary: No replica of {{ $id }} in {{ "{{ $labels.namespace }}" }} is the leader.
      description: All replicas are on standby, so nothing is reconciled.
      runbook: >-
        kubectl get lease {{ $id }} -n {{ "{{ $labels.namespace }}" }} -o yaml: check holderIdentity, and whether renewTime advances. A
        holder that no longer runs loses the Lease after leaseDurationSeconds. The log contains rejected renewals.
  - alert: OperatorTwoLeaders
    expr: sum by (namespace, job) (leader_election_master_status{ {{- $job -}} }) > 1
    for: 2m
    labels:
      severity: critical
      operator: {{ $id }}
    annotations:
      summary: Several replicas of {{ $id }} in {{ "{{ $labels.namespace }}" }} report that they are the leader.
      description: Writes of two leaders are safe to repeat, but leaders of different versions undo each other's changes.
      runbook: >-
        Compare the clocks of the nodes, then delete the pod that does not hold the Lease.
  - alert: OperatorLeaderIdle
    expr: |-
      max by (namespace, job) (leader_election_master_status{ {{- $job -}} }) == 1
      and on (namespace, job)
      max by (namespace, job) (operator_working{ {{- $job -}} }) == 0
    for: 5m
    labels:
      severity: critical
      operator: {{ $id }}
    annotations:
      summary: The leader of {{ $id }} in {{ "{{ $labels.namespace }}" }} does not reconcile anything.
      description: It holds the Lease, but still compares its caches with the API server.
      runbook: >-
        The log of the leader names the list that fails ("Cannot compare the cache with the API server, retrying").
  - alert: OperatorNamespaceUnreadable
    expr: min by (namespace, job, watched_namespace) (operator_cache_scope_up{ {{- $job -}} }) == 0
    for: 15m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: >-
        {{ $id }} cannot read the namespace {{ "{{ $labels.watched_namespace }}" }}, which it must watch.
      description: >-
        Objects in this namespace are not reconciled; all other namespaces are. The usual cause is a
        namespace that was deleted, or deleted and recreated, so that its Role and RoleBinding no longer exist.
      runbook: >-
        If the namespace was deleted permanently, remove it from watch.namespaces and run `helm upgrade`. If it
        exists, run `helm upgrade` with the same values to recreate the Role. /readyz?verbose names
        the kinds that cannot be read.
  - alert: OperatorObjectsNotReady
    expr: |-
      max by (namespace, job, controller, reason) (
        operator_objects{ {{- $job -}} , type="Ready", status="False"}
      ) > 0
    for: 30m
    labels:
      severity: info
      operator: {{ $id }}
    annotations:
      summary: >-
        {{ "{{ $value }}" }} objects of {{ "{{ $labels.controller }}" }} have not been ready for 30 minutes ({{ "{{ $labels.reason }}" }}).
      description: The condition Ready of each object names the cause. Often the owner of the object must fix it.
      runbook: >-
        List the objects of the kind with kubectl get -A, then run kubectl describe on one whose column
        READY is False.
  - alert: OperatorReconcileErrors
    expr: |-
      sum by (namespace, job, controller) (rate(controller_runtime_reconcile_errors_total{ {{- $job -}} }[10m]))
        /
      sum by (namespace, job, controller) (rate(controller_runtime_reconcile_total{ {{- $job -}} }[10m]))
        > 0.1
    for: 15m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: >-
        {{ "{{ $value | humanizePercentage }}" }} of the reconciles of {{ "{{ $labels.controller }}" }} fail.
      description: Failing objects are retried with increasing delays; their conditions name the cause.
      runbook: >-
        kubectl logs -n {{ "{{ $labels.namespace }}" }} deploy/{{ include "operator-common.fullname" . }} --all-pods | grep '"level":"error"',
        then run kubectl describe on the object named in the log.
  - alert: OperatorReconcilePanics
    expr: sum by (namespace, job, controller) (increase(controller_runtime_reconcile_panics_total{ {{- $job -}} }[15m])) > 0
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: A reconcile of {{ "{{ $labels.controller }}" }} ended with an unhandled error.
      description: This is a bug of the operator; the object is retried with increasing delays.
      runbook: The log contains the traceback and the key of the object. Please report both.
  - alert: OperatorReconcileSlow
    expr: |-
      histogram_quantile(0.99,
        sum by (namespace, job, controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{ {{- $job -}} }[10m]))
      ) > 30
    for: 15m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: 1 % of the reconciles of {{ "{{ $labels.controller }}" }} take more than 30 s.
      description: The API server or an external system responds slowly.
      runbook: >-
        Panels "API request latency" and "Event loop lag" of the dashboard show where the time is
        spent; traces (tracing.endpoint) show which request is slow.
  - alert: OperatorQueueBacklog
    expr: |-
      histogram_quantile(0.9,
        sum by (namespace, job, name, le) (rate(workqueue_queue_duration_seconds_bucket{ {{- $job -}} }[10m]))
      ) > 60
      and on (namespace, job, name)
      sum by (namespace, job, name) (workqueue_depth{ {{- $job -}} }) > 0
    for: 15m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: Objects wait more than a minute in the queue {{ "{{ $labels.name }}" }}.
      description: Changes arrive faster than the workers can process them.
      runbook: >-
        Increase settings.maxConcurrentReconciles if all workers are busy and the API server is not.
        Otherwise see OperatorReconcileSlow.
  - alert: OperatorReconcileStuck
    expr: max by (namespace, job, name) (workqueue_longest_running_processor_seconds{ {{- $job -}} }) > 600
    for: 5m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: A worker of {{ "{{ $labels.name }}" }} has been reconciling one object for more than 10 minutes.
      description: The reconcile should have been cancelled after settings.reconcileTimeoutSeconds.
      runbook: Delete the pod of the leader; a standby takes over. Please report the log of the deleted pod.
  - alert: OperatorWatchStale
    expr: max by (namespace, job, resource) (operator_watch_last_event_age_seconds{ {{- $job -}} }) > 900
    for: 5m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: The watch of {{ "{{ $labels.resource }}" }} has received nothing for more than 15 minutes.
      description: >-
        A working watch receives a bookmark about every minute. Until it works again, only the sweep detects
        changes, every settings.sweepPeriodSeconds.
      runbook: >-
        Check that the CRD still exists (kubectl get crd), and that the operator may still list the kind
        (kubectl auth can-i list ... --as=system:serviceaccount:...).
  - alert: OperatorChangesMissed
    expr: sum by (namespace, job, resource) (increase(operator_cache_swept_total{ {{- $job -}} }[1h])) > 10
    labels:
      severity: info
      operator: {{ $id }}
    annotations:
      summary: The sweep found changes of {{ "{{ $labels.resource }}" }} that the watch did not report.
      description: No change is lost, but the operator reacts late.
      runbook: Check for a proxy between the operator and the API server that closes long connections.
  - alert: OperatorRequestsRefused
    expr: sum by (namespace, job, code) (rate(rest_client_requests_total{ {{- $job -}} ,code=~"401|403|429|5.."}[10m])) > 0.1
    for: 15m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: The API server repeatedly rejects requests of {{ $id }} with {{ "{{ $labels.code }}" }}.
      description: 401 and 403 indicate missing permissions, 429 priority and fairness, 5xx a failure of the server.
      runbook: >-
        For 403, compare the roles in the cluster with `helm template`. For a namespace in
        watch.namespaces, see OperatorNamespaceUnreadable.
  - alert: OperatorEventsDropped
    # A few are dropped on purpose: very many different Events of one object.
    expr: sum by (namespace, job) (increase(operator_events_total{ {{- $job -}} ,result=~"dropped|failed"}[1h])) > 100
    labels:
      severity: info
      operator: {{ $id }}
    annotations:
      summary: {{ $id }} in {{ "{{ $labels.namespace }}" }} lost more than 100 Kubernetes Events in an hour.
      description: Users do not see these Events. Conditions and objects are not affected.
      runbook: >-
        kubectl auth can-i create events.events.k8s.io --as=system:serviceaccount:...; if the operator may create them,
        its log names the error, often a quota or the load of the API server.
  - alert: OperatorWebhookCertificateExpiring
    # Renewed long before, so little is left only if that has failed for long.
    expr: |-
      min by (namespace, job) (operator_webhook_certificate_expiration_timestamp_seconds{ {{- $job -}} } > 0) - time()
        < {{ mul 3600 (include "operator-common.certificateWarningHours" . | int) }}
    for: 1h
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: The certificate of the webhooks of {{ $id }} in {{ "{{ $labels.namespace }}" }} expires soon.
      {{- if include "operator-common.certificateSecret" . }}
      description: >-
        Its issuer should have replaced it in the Secret {{ include "operator-common.certificateSecret" . }} long before. After it has expired, the
        API server no longer calls the webhooks.
      runbook: >-
        kubectl describe certificates shows why cert-manager did not renew it. If the Secret contains a newer certificate,
        the log of the operator says why it is not served ("Cannot maintain the certificate of the webhook, retrying").
      {{- else }}
      description: >-
        The operator renews it after 60 of 90 days, and could not. After it has expired, the API server no longer calls the webhooks.
      runbook: >-
        The log says why ("Cannot maintain the certificate of the webhook, retrying"): often the permission to update the
        Secret or the webhook configuration is missing.
      {{- end }}
{{- end -}}
