{{/*
operator-common.podDisruptionBudget: prevents a drain from evicting all replicas together. Rendered only for
two or more replicas, because with one it would block the drain indefinitely.
*/}}
{{- define "operator-common.podDisruptionBudget" -}}
{{- if and .Values.podDisruptionBudget.enabled (gt (int .Values.replicas) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "operator-common.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  {{- if kindIs "invalid" .Values.podDisruptionBudget.minAvailable }}
  maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}
  {{- else }}
  minAvailable: {{ .Values.podDisruptionBudget.minAvailable }}
  {{- end }}
  # An unready pod must not block a drain, because it does not protect availability.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "operator-common.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{/*
operator-common.lease: the Lease of the leader election. The chart creates it empty, so that
`helm uninstall` deletes it; the operator writes the spec. Helm deletes kinds without a defined order,
such as Leases, last: the roles are then already deleted, so a replica that is still shutting down
cannot create a new Lease and lead again. The name is the operator's id, not the name of the release,
because two releases in one namespace would reconcile the same objects.
*/}}
{{- define "operator-common.lease" -}}
{{- if .Values.lease.create -}}
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: {{ include "operator-common.id" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
{{- end -}}
{{- end -}}
