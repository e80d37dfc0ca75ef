{{/*
Hooks of a release. They run the operator's image, which has no shell, so their work is implemented as
subcommands of the operator.
*/}}

{{/*
operator-common.cleanup: removes the operator's finalizers from its objects before an uninstall, so
that the objects can be deleted without the operator. The objects and their children stay. The Job
acquires the Lease first, so that no running replica adds a finalizer again.
*/}}
{{- define "operator-common.cleanup" -}}
{{- if .Values.cleanup.onUninstall -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "operator-common.fullname" . }}-cleanup
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.identity" . | nindent 4 }}
    app.kubernetes.io/component: cleanup
  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 3
  activeDeadlineSeconds: {{ .Values.cleanup.timeoutSeconds }}
  # A failed Job is kept for one hour, for its log.
  ttlSecondsAfterFinished: 3600
  template:
    metadata:
      labels:
        {{- include "operator-common.identity" . | nindent 8 }}
        app.kubernetes.io/component: cleanup
    spec:
      {{- include "operator-common.podCommon" . | nindent 6 }}
      serviceAccountName: {{ include "operator-common.serviceAccountName" . }}
      automountServiceAccountToken: true
      restartPolicy: OnFailure
      containers:
        - name: cleanup
          image: {{ include "operator-common.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - release
            {{- with .Values.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with .Values.extraEnvFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          env:
            {{- include "operator-common.env" . | nindent 12 }}
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
          securityContext:
            {{- include "operator-common.containerSecurityContext" . | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          volumeMounts:
            {{- include "operator-common.volumeMounts" . | nindent 12 }}
      volumes:
        {{- include "operator-common.volumes" . | nindent 8 }}
{{- end -}}
{{- end -}}

{{/* operator-common.test: the Pod of `helm test`, which checks readiness through the Service. */}}
{{- define "operator-common.test" -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "operator-common.fullname" . }}-test
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.identity" . | nindent 4 }}
    app.kubernetes.io/component: test
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  {{- include "operator-common.podCommon" . | nindent 2 }}
  automountServiceAccountToken: false
  restartPolicy: Never
  containers:
    - name: test
      image: {{ include "operator-common.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [check, "http://{{ include "operator-common.fullname" . }}:8081/readyz"]
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- include "operator-common.containerSecurityContext" . | nindent 8 }}
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - name: tmp
          mountPath: /tmp
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: 64Mi
{{- end -}}
