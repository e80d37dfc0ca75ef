{{/*
operator-common.alerts: alerts that make sense for any operator, as {rules: [...]}.

Rules of thumb: an alert needs a person; what heals by itself is on the dashboard. Expressions keep
the labels namespace and job, so an installation can be told from another. `runbook` names the first
thing to look at; docs/howto/monitor.md has the rest.
*/}}
{{- define "operator-common.alerts" -}}
{{- $job := printf "job=%q" (include "operator-common.fullname" .) -}}
{{- $id := include "operator-common.id" . -}}
rules:
  - alert: OperatorDown
    # The second half is for an installation that has no pods at all, where there is no other.
    expr: max by (namespace, job) (up{ {{- $job -}} }) == 0 or absent(up{ {{- $job -}} })
    for: 10m
    labels:
      severity: critical
      operator: {{ $id }}
    annotations:
      summary: >-
        No replica of the operator {{ $id }}{{ "{{ with $labels.namespace }} in {{ . }}{{ end }}" }} answers scrapes.
      description: Objects of {{ $id }} are not reconciled. What they own keeps running.
      runbook: >-
        kubectl get pods -A -l app.kubernetes.io/name={{ $id }}; look at events and at the log of the
        last container (kubectl logs --previous).
  - alert: OperatorNoLeader
    expr: max by (namespace, job) (leader_election_master_status{ {{- $job -}} }) == 0
    for: 5m
    labels:
      severity: critical
      operator: {{ $id }}
    annotations:
      summary: No replica of {{ $id }} in {{ "{{ $labels.namespace }}" }} leads.
      description: All replicas stand by, so nothing is reconciled.
      runbook: >-
        kubectl get lease {{ $id }} -n {{ "{{ $labels.namespace }}" }} -o yaml: who holds it, and is renewTime moving? A holder that is
        gone loses it after leaseDurationSeconds. Refused renewals are in the log.
  - alert: OperatorTwoLeaders
    expr: sum by (namespace, job) (leader_election_master_status{ {{- $job -}} }) > 1
    for: 2m
    labels:
      severity: critical
      operator: {{ $id }}
    annotations:
      summary: Several replicas of {{ $id }} in {{ "{{ $labels.namespace }}" }} believe that they lead.
      description: Writes of two leaders are safe to repeat but undo each other while versions differ.
      runbook: >-
        Compare the clocks of the nodes, then delete the pod that is not the holder of the Lease.
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
      description: Failing objects are retried with growing delays; their conditions say why.
      runbook: >-
        kubectl logs -n {{ "{{ $labels.namespace }}" }} deploy/{{ include "operator-common.fullname" . }} --all-pods | grep '"level":"error"',
        then kubectl describe the object that is named there.
  - alert: OperatorReconcilePanics
    expr: sum by (namespace, job, controller) (increase(controller_runtime_reconcile_panics_total{ {{- $job -}} }[15m])) > 0
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: A reconcile of {{ "{{ $labels.controller }}" }} ended with an error that nobody expected.
      description: This is a bug of the operator; the object is retried with growing delays.
      runbook: The log has the traceback and the key of the object. Please report both.
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
      summary: One in a hundred reconciles of {{ "{{ $labels.controller }}" }} takes more than 30 s.
      description: The API server or an outside system answers slowly.
      runbook: >-
        Panels "API request latency" and "Event loop lag" of the dashboard tell whose time it is;
        traces (tracing.endpoint) tell which request.
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
      summary: Objects wait for more than a minute in the queue {{ "{{ $labels.name }}" }}.
      description: More changes come in than the workers get through.
      runbook: >-
        Raise settings.maxConcurrentReconciles when the workers are all busy and the API server is
        not; else see OperatorReconcileSlow.
  - alert: OperatorReconcileStuck
    expr: max by (namespace, job, name) (workqueue_longest_running_processor_seconds{ {{- $job -}} }) > 600
    for: 5m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: A worker of {{ "{{ $labels.name }}" }} has been on one object for more than 10 minutes.
      description: It should have been cancelled after settings.reconcileTimeoutSeconds.
      runbook: Delete the leader's pod; the standby goes on. Please report the log of the old one.
  - alert: OperatorWatchStale
    expr: max by (namespace, job, resource) (operator_watch_last_event_age_seconds{ {{- $job -}} }) > 900
    for: 5m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: The watch of {{ "{{ $labels.resource }}" }} has been silent for more than 15 minutes.
      description: >-
        A live watch gets a bookmark about every minute. Changes are found by the sweep only, every
        settings.sweepPeriodSeconds.
      runbook: >-
        Is the CRD still there (kubectl get crd), and may the operator still list the kind
        (kubectl auth can-i list ... --as=system:serviceaccount:...)?
  - alert: OperatorChangesMissed
    expr: sum by (namespace, job, resource) (increase(operator_cache_swept_total{ {{- $job -}} }[1h])) > 10
    labels:
      severity: info
      operator: {{ $id }}
    annotations:
      summary: The sweep had to find changes of {{ "{{ $labels.resource }}" }} that the watch did not tell.
      description: Nothing is lost, but changes are acted on late.
      runbook: Look for a proxy between operator and API server that cuts long connections.
  - alert: OperatorRequestsRefused
    expr: sum by (namespace, job, code) (rate(rest_client_requests_total{ {{- $job -}} ,code=~"401|403|429|5.."}[10m])) > 0.1
    for: 15m
    labels:
      severity: warning
      operator: {{ $id }}
    annotations:
      summary: The API server answers {{ $id }} with {{ "{{ $labels.code }}" }} again and again.
      description: 401 and 403 are permissions, 429 is priority and fairness, 5xx is the server.
      runbook: >-
        For 403 compare the roles of the release with `helm template`; a namespace in
        watch.namespaces that was created anew has lost its Role, and `helm upgrade` brings it back.
{{- end -}}
