{{/*
The signing key of an operator, for charts with the setting signingSecret. The operator generates the
key and writes it into the Secret that is created here.
*/}}

{{/* operator-common.signingName: name of the Secret, and of the Role that grants access to it. */}}
{{- define "operator-common.signingName" -}}
{{- (.Values.settings | default dict).signingSecret | default (printf "%s-signing" (include "operator-common.fullname" .)) -}}
{{- end -}}

{{/* operator-common.signs: not empty if the operator has a key to sign with. */}}
{{- define "operator-common.signs" -}}
{{- range (.Files.Get "files/settings.yaml" | fromYaml).settings -}}
{{- if eq .name "signingSecret" -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.signing: an empty Secret. Because the Secret is rendered without data, an upgrade keeps the key,
and an uninstall deletes it. The user provides a Secret that is named in settings.signingSecret.
*/}}
{{- define "operator-common.signing" -}}
{{- if and (include "operator-common.signs" .) (not (.Values.settings | default dict).signingSecret) -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ include "operator-common.signingName" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
type: Opaque
{{- end -}}
{{- end -}}

{{/* operator-common.signingRole: the permissions of operator-common.signingRules and their binding. */}}
{{- define "operator-common.signingRole" -}}
{{ include "operator-common.role" (dict "root" . "name" (printf "%s-signing" (include "operator-common.fullname" .)) "namespace" .Release.Namespace "rules" (include "operator-common.signingRules" . | fromYamlArray)) }}
{{- end -}}

{{/* operator-common.signingRules: access to this Secret and no other. */}}
{{- define "operator-common.signingRules" -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "operator-common.signingName" . }}]
  verbs: [get, update]
{{- end -}}
