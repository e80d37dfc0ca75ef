{{/*
operator-common.deployment: the operator itself. New pods start before old ones stop; that works
with a leader election because readiness does not depend on leadership. Without one the old pod stops
first.
*/}}
{{- define "operator-common.deployment" -}}
{{- include "operator-common.validate" . -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "operator-common.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.replicas }}
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- include "operator-common.selectorLabels" . | nindent 6 }}
  strategy:
    {{- if eq (include "operator-common.setting" (list . "leaderElect")) "false" }}
    # Nothing else keeps the old pod and the new one from working at the same time.
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
    {{- end }}
  template:
    metadata:
      annotations:
        # What `kubectl logs` and `kubectl exec` take when no container is named.
        kubectl.kubernetes.io/default-container: operator
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      labels:
        # Without the chart's version: a release that changes nothing else restarts nothing.
        {{- include "operator-common.identity" . | nindent 8 }}
        app.kubernetes.io/component: operator
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "operator-common.podCommon" . | nindent 6 }}
      serviceAccountName: {{ include "operator-common.serviceAccountName" . }}
      automountServiceAccountToken: true
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- include "operator-common.topologySpread" . | nindent 6 }}
      containers:
        - {{ include "operator-common.container" . | nindent 10 | trim }}
      volumes:
        {{- include "operator-common.volumes" . | nindent 8 }}
{{- end -}}

{{/*
operator-common.topologySpread: replicas on different nodes where there are several, and on one node
where there is but one. matchLabelKeys keeps the old pods of a rolling update out of the count.
*/}}
{{- define "operator-common.topologySpread" -}}
topologySpreadConstraints:
  {{- if .Values.topologySpreadConstraints }}
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "operator-common.selectorLabels" . | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end -}}

{{/*
operator-common.container: the one container. The startup probe gives slow nodes a minute; after it
the liveness probe restarts a process whose event loop hangs, and nothing else: an API server that
is away is not cured by a restart.
*/}}
{{- define "operator-common.container" -}}
name: operator
image: {{ include "operator-common.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  {{- include "operator-common.env" . | nindent 2 }}
ports:
  - name: metrics
    containerPort: 8080
  - name: probes
    containerPort: 8081
  {{- if include "operator-common.hasWebhooks" . }}
  - name: webhook
    containerPort: 9443
  {{- end }}
startupProbe:
  httpGet:
    path: /healthz
    port: probes
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet:
    path: /healthz
    port: probes
  periodSeconds: 10
  timeoutSeconds: 2
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: probes
  periodSeconds: 5
  timeoutSeconds: 2
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "operator-common.containerSecurityContext" . | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  {{- include "operator-common.volumeMounts" . | nindent 2 }}
{{- end -}}
