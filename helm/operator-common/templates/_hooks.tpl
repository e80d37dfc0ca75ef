{{/*
Hooks of a release. They run the operator's image, which has no shell, so their work is implemented as
subcommands of the operator.
*/}}

{{/*
operator-common.hookLabels: labels of a pod of a hook. Takes a list of the root context and the component. Without
the labels, Istio or Kuma would add a sidecar, and a Job with a sidecar may never complete.
*/}}
{{- define "operator-common.hookLabels" -}}
{{- $own := include "operator-common.identity" (first .) | fromYaml -}}
{{- $own = merge (dict "app.kubernetes.io/component" (last .) "sidecar.istio.io/inject" "false" "kuma.io/sidecar-injection" "disabled") $own -}}
{{- merge $own (first .).Values.podLabels | toYaml -}}
{{- end -}}

{{/* operator-common.hookAnnotations: annotations of a pod of a hook; they turn off the sidecars of meshes as well. */}}
{{- define "operator-common.hookAnnotations" -}}
{{- merge (dict "sidecar.istio.io/inject" "false" "linkerd.io/inject" "disabled" "consul.hashicorp.com/connect-inject" "false") .Values.podAnnotations | toYaml -}}
{{- end -}}

{{/*
operator-common.hookAffinity: the node affinity of the pods. Rules about other pods do not apply to hooks: if each
pod of the operator needs a node of its own, a hook might find none.
*/}}
{{- define "operator-common.hookAffinity" -}}
{{- with .Values.affinity.nodeAffinity -}}
affinity:
  nodeAffinity:
    {{- toYaml . | nindent 4 }}
{{- end -}}
{{- end -}}

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
        {{- include "operator-common.hookLabels" (list . "cleanup") | nindent 8 }}
      annotations:
        {{- include "operator-common.hookAnnotations" . | nindent 8 }}
    spec:
      {{- include "operator-common.podCommon" . | nindent 6 }}
      {{- include "operator-common.hookAffinity" . | nindent 6 }}
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
    {{- include "operator-common.hookLabels" (list . "test") | nindent 4 }}
  annotations:
    {{- include "operator-common.hookAnnotations" . | nindent 4 }}
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  {{- include "operator-common.podCommon" . | nindent 2 }}
  {{- include "operator-common.hookAffinity" . | nindent 2 }}
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
