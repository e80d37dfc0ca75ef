{{/*
operator-common.deployment: the Deployment of the operator. New pods start before old pods stop; this
works with leader election because readiness does not depend on leadership. Without leader election
the old pod stops first.
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
  {{- with .Values.deploymentAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: {{ .Values.replicas }}
  revisionHistoryLimit: {{ .Values.revisionHistoryLimit }}
  selector:
    matchLabels:
      {{- include "operator-common.selectorLabels" . | nindent 6 }}
  strategy:
    {{- if .Values.strategy }}
    {{- toYaml .Values.strategy | nindent 4 }}
    {{- else if eq (include "operator-common.setting" (list . "leaderElect")) "false" }}
    # Without leader election, only this prevents the old and the new pod from running together.
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
        # The container that `kubectl logs` and `kubectl exec` select by default.
        kubectl.kubernetes.io/default-container: operator
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      labels:
        # No chart version here, so that a release without other changes restarts no pod.
        {{- include "operator-common.identity" . | nindent 8 }}
        app.kubernetes.io/component: operator
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "operator-common.podCommon" . | nindent 6 }}
      {{- if .Values.hostNetwork }}
      hostNetwork: true
      {{- if not .Values.dnsPolicy }}
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      {{- end }}
      serviceAccountName: {{ include "operator-common.serviceAccountName" . }}
      automountServiceAccountToken: true
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- include "operator-common.topologySpread" . | nindent 6 }}
      {{- with .Values.initContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - {{ include "operator-common.container" . | nindent 10 | trim }}
        {{- with .Values.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
        {{- include "operator-common.volumes" . | nindent 8 }}
{{- end -}}

{{/*
operator-common.topologySpread: spreads replicas across nodes, if the cluster has several.
matchLabelKeys excludes the old pods of a rolling update from the count.
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
operator-common.container: the container of the operator. By default, the startup probe allows one minute
on slow nodes. After that, the liveness probe restarts a process only if its event loop hangs, because a
restart does not help against an unavailable API server.
*/}}
{{- define "operator-common.container" -}}
name: operator
image: {{ include "operator-common.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.extraArgs }}
args:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
env:
  {{- include "operator-common.env" . | nindent 2 }}
ports:
  - name: metrics
    containerPort: {{ .Values.ports.metrics }}
  - name: probes
    containerPort: {{ .Values.ports.probes }}
  {{- if include "operator-common.hasWebhooks" . }}
  - name: webhook
    containerPort: {{ .Values.ports.webhook }}
  {{- end }}
startupProbe:
  httpGet:
    path: /healthz
    port: probes
  {{- toYaml .Values.startupProbe | nindent 2 }}
livenessProbe:
  httpGet:
    path: /healthz
    port: probes
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet:
    path: /readyz
    port: probes
  {{- toYaml .Values.readinessProbe | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "operator-common.containerSecurityContext" . | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  {{- include "operator-common.volumeMounts" . | nindent 2 }}
{{- end -}}
