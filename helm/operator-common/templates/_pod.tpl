{{/*
Parts of a pod that the operator, the clean-up Job and the test pod share. Together they satisfy the
`restricted` Pod Security Standard: settings that the standard demands are fixed here, and the schema accepts
no weaker ones. Only hostNetwork and containers, volumes and objects that a user adds can exceed it.
*/}}

{{/* operator-common.podSecurityContext: security context of a pod. */}}
{{- define "operator-common.podSecurityContext" -}}
{{- $context := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- $ids := list "runAsUser" "runAsGroup" "fsGroup" -}}
{{- range $name, $value := .Values.podSecurityContext -}}
{{- if and $value (not (and $.Values.global.platformAssignsUserIds (has $name $ids))) -}}
{{- $_ := set $context $name $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* operator-common.containerSecurityContext: security context of a container. */}}
{{- define "operator-common.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- with .Values.securityContext.appArmorProfile }}
appArmorProfile:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
operator-common.podCommon: fields of every pod of the chart except its containers. Service links are
disabled, because a Service named like the operator would add environment variables such as
PODSET_PORT, which look like settings.
*/}}
{{- define "operator-common.podCommon" -}}
enableServiceLinks: false
securityContext:
  {{- include "operator-common.podSecurityContext" . | nindent 2 }}
{{- with concat .Values.imagePullSecrets .Values.global.imagePullSecrets | uniq }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName | default .Values.global.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if not (kindIs "invalid" .Values.hostUsers) }}
hostUsers: {{ .Values.hostUsers }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge dict .Values.nodeSelector .Values.global.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat .Values.tolerations .Values.global.tolerations | uniq }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
operator-common.volumes: /tmp is the only writable directory. Its size is limited, so that a runaway
file evicts this pod and not other pods of the node.
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
operator-common.env: environment variables of the operator: extraEnv, and the variables of the chart that
extraEnv does not name.
*/}}
{{- define "operator-common.env" -}}
{{- $names := list -}}
{{- range .Values.extraEnv -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $env := list -}}
{{- range include "operator-common.chartEnv" . | fromYamlArray -}}
{{- if not (has .name $names) -}}
{{- $env = append $env . -}}
{{- end -}}
{{- end -}}
{{- concat $env .Values.extraEnv | toYaml -}}
{{- end -}}

{{/*
operator-common.chartEnv: environment variables that the chart sets. files/settings.yaml (generated) maps
settings to variables, so no name is converted here. A setting that is null keeps its default. Lists
are separated by commas, as the settings expect.
*/}}
{{- define "operator-common.chartEnv" -}}
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
{{- if $watched.selector }}
- name: {{ include "operator-common.envPrefix" . }}WATCH_NAMESPACE_SELECTOR
  value: {{ $watched.selector | quote }}
{{- else if or $watched.all .Values.watch.namespaces }}
- name: {{ include "operator-common.envPrefix" . }}WATCH_NAMESPACES
  value: {{ ternary "*" (join "," $watched.names) $watched.all | quote }}
{{- end }}
{{- with .Values.watch.excludedNamespaces }}
- name: {{ include "operator-common.envPrefix" $ }}WATCH_EXCLUDED_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- if (include "operator-common.guardedNamespaces" . | fromJson).names }}
- name: {{ include "operator-common.envPrefix" . }}ROLE_BINDING
  value: {{ include "operator-common.guardedBinding" . }}
{{- end }}
{{- range $setting := (.Files.Get "files/settings.yaml" | fromYaml).settings }}
{{- if not (get $values .name) }}
{{- with include "operator-common.defaultImage" (dict "root" $ "setting" .) }}
- name: {{ $setting.env }}
  value: {{ . }}
{{- end }}
{{- end }}
{{- if and (eq .name "platformAssignsUserIds") $.Values.global.platformAssignsUserIds (has (toString (get $values .name)) (list "" "<nil>")) }}
- name: {{ .env }}
  value: "true"
{{- end }}
{{- /* The families of pods are the families of the addresses of this one. */}}
{{- if eq .name "ipFamilies" }}
- name: POD_IPS
  valueFrom:
    fieldRef:
      fieldPath: status.podIPs
{{- end }}
{{- /* An operator that signs its messages has a Secret for the key. */}}
{{- if and (eq .name "signingSecret") (not (get $values .name)) }}
- name: {{ .env }}
  value: {{ include "operator-common.signingName" $ }}
{{- end }}
{{- end }}
{{- if include "operator-common.hasWebhooks" . }}
- name: {{ include "operator-common.envPrefix" . }}WEBHOOK_SERVICE
  value: {{ include "operator-common.webhookName" . }}
{{- with include "operator-common.certificateSecret" . }}
- name: {{ include "operator-common.envPrefix" $ }}WEBHOOK_CERTIFICATE_SECRET
  value: {{ . }}
{{- end }}
{{- range $type, $variable := dict "Mutating" "WEBHOOK_CONFIGURATION" "Validating" "WEBHOOK_VALIDATING_CONFIGURATION" }}
{{- if include "operator-common.webhooksOf" (list $ $type) | fromJsonArray }}
- name: {{ include "operator-common.envPrefix" $ }}{{ $variable }}
  value: {{ include "operator-common.clusterName" $ }}
{{- end }}
{{- end }}
{{- end }}
{{- $ports := list (list "METRICS_BIND_ADDRESS" .Values.ports.metrics 8080) (list "HEALTH_PROBE_BIND_ADDRESS" .Values.ports.probes 8081) -}}
{{- if include "operator-common.hasWebhooks" . -}}
{{- $ports = append $ports (list "WEBHOOK_BIND_ADDRESS" .Values.ports.webhook 9443) -}}
{{- end -}}
{{- range $ports }}
{{- if ne (int (index . 1)) (last .) }}
- name: {{ include "operator-common.envPrefix" $ }}{{ first . }}
  value: ":{{ index . 1 }}"
{{- end }}
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
{{- end -}}

{{/*
operator-common.setting: the effective value of a setting: the value from `settings`, otherwise the
default of the setting, otherwise empty. Takes a list of the root context and the name.
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
operator-common.settingText: a setting in the format of its environment variable. Helm reads numbers as
floats and prints 36000000 as 3.6e+07, so whole numbers are formatted as integers.
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
