{{/*
operator-common.podDisruptionBudget: keeps a drain from taking all replicas at once. Only with two
or more: with one replica it would block the drain for good.
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
  maxUnavailable: 1
  # A pod that is not ready protects nothing and must not block a drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "operator-common.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{/*
operator-common.lease: the Lease of the leader election. The chart only says that it exists, so that
`helm uninstall` takes it away; the operator fills in the spec. Helm deletes kinds that it does not
order, such as this one, last: when the Lease goes, the roles are gone, so that no replica that is
still ending can make a new one and lead again. Its name is the operator's id, not that of the
release, because two releases in one namespace would work on the same objects.
*/}}
{{- define "operator-common.lease" -}}
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: {{ include "operator-common.id" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
{{- end -}}
