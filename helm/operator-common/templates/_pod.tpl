{{/*
Parts of a pod that the operator, the clean-up Job and the test pod share. Together they satisfy the
`restricted` Pod Security Standard, which is not a value: nothing an operator does needs more.
*/}}

{{/* operator-common.podSecurityContext: security of a whole pod. */}}
{{- define "operator-common.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* operator-common.containerSecurityContext: security of one container. */}}
{{- define "operator-common.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/*
operator-common.podCommon: what any pod of the chart has beside its containers. Service links are
off, since a Service named like the operator would give it variables such as PODSET_PORT, which
read like its settings.
*/}}
{{- define "operator-common.podCommon" -}}
enableServiceLinks: false
securityContext:
  {{- include "operator-common.podSecurityContext" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
operator-common.volumes: the only place that can be written is /tmp, in memory of no one but the
pod and limited, so that a runaway file evicts this pod and not its neighbors.
*/}}
{{- define "operator-common.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* operator-common.volumeMounts: mounts of operator-common.volumes. */}}
{{- define "operator-common.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
operator-common.env: environment of the operator. Which setting has which variable is generated
(files/settings.yaml), so that no name is converted here; a setting that is null keeps its default.
Lists are written with commas, as the settings read them.
*/}}
{{- define "operator-common.env" -}}
{{- $watched := include "operator-common.watchedNamespaces" . | fromJson -}}
{{- $values := .Values.settings | default dict -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: OPERATOR_VERSION
  value: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
{{- if or $watched.all .Values.watch.namespaces }}
- name: {{ include "operator-common.envPrefix" . }}WATCH_NAMESPACES
  value: {{ ternary "*" (join "," $watched.names) $watched.all | quote }}
{{- end }}
{{- /* An operator that starts containers of its own image is told what that is. */}}
{{- range (.Files.Get "files/settings.yaml" | fromYaml).settings }}
{{- if and (eq .name "injectorImage") (not (get $values .name)) }}
- name: {{ .env }}
  value: {{ include "operator-common.image" $ }}
{{- end }}
{{- end }}
{{- if include "operator-common.hasWebhooks" . }}
- name: {{ include "operator-common.envPrefix" . }}WEBHOOK_SERVICE
  value: {{ include "operator-common.webhookName" . }}
- name: {{ include "operator-common.envPrefix" . }}WEBHOOK_CONFIGURATION
  value: {{ include "operator-common.clusterName" . }}
{{- end }}
{{- with .Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- range (.Files.Get "files/settings.yaml" | fromYaml).settings }}
{{- $value := get $values .name }}
{{- if and (hasKey $values .name) (not (kindIs "invalid" $value)) }}
- name: {{ .env }}
  value: {{ include "operator-common.settingText" $value | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
operator-common.setting: what a setting is, be it by its value or by its own default; empty where it
has neither. Takes the root context and the name, as a list.
*/}}
{{- define "operator-common.setting" -}}
{{- $root := first . -}}
{{- $name := last . -}}
{{- $value := get ($root.Values.settings | default dict) $name -}}
{{- if not (has (toString $value) (list "" "<nil>")) -}}
{{- include "operator-common.settingText" $value -}}
{{- else -}}
{{- range ($root.Files.Get "files/settings.yaml" | fromYaml).settings -}}
{{- if and (eq .name $name) (hasKey . "default") -}}
{{- include "operator-common.settingText" .default -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.settingText: a setting as its variable holds it. Helm reads numbers as floats, whose
default form turns 36000000 into 3.6e+07, so whole numbers are printed as such.
*/}}
{{- define "operator-common.settingText" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if kindIs "map" . -}}
{{- toJson . -}}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- printf "%d" (int64 .) -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}
