{{/*
The signing key of an operator, for charts with the setting signingSecret. The operator generates the
key and writes it into the Secret that is created here.
*/}}

{{/* operator-common.signingName: name of the Secret, and of the Role that grants access to it. */}}
{{- define "operator-common.signingName" -}}
{{- (.Values.settings | default dict).signingSecret | default (printf "%s-signing" (include "operator-common.fullname" .)) -}}
{{- end -}}

{{/*
operator-common.signing: an empty Secret and a Role for it. Because the Secret is rendered without data, an
upgrade keeps the key, and an uninstall deletes it. The user provides a Secret that is named in
settings.signingSecret.
*/}}
{{- define "operator-common.signing" -}}
{{- $root := . -}}
{{- $name := include "operator-common.signingName" . -}}
{{- range (.Files.Get "files/settings.yaml" | fromYaml).settings -}}
{{- if eq .name "signingSecret" -}}
{{- if not ($root.Values.settings | default dict).signingSecret }}
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "operator-common.labels" $root | nindent 4 }}
type: Opaque
{{- end }}
{{- if $root.Values.rbac.create }}
---
{{ include "operator-common.role" (dict "root" $root "name" (printf "%s-signing" (include "operator-common.fullname" $root)) "namespace" $root.Release.Namespace "rules" (include "operator-common.signingRules" $root | fromYamlArray)) }}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* operator-common.signingRules: access to this Secret and no other. */}}
{{- define "operator-common.signingRules" -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "operator-common.signingName" . }}]
  verbs: [get, update]
{{- end -}}
