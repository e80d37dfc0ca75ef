{{/*
Admission webhooks, for charts that have a files/webhooks.yaml, where settings.webhooks turns them on.
The operator makes and renews the certificate; it only fills in what is made here.
*/}}

{{/* operator-common.hasWebhooks: non-empty where webhooks are on. */}}
{{- define "operator-common.hasWebhooks" -}}
{{- if and (eq (include "operator-common.setting" (list . "webhooks")) "true") (.Files.Get "files/webhooks.yaml") -}}
true
{{- end -}}
{{- end -}}

{{/* operator-common.webhookName: name of the Service of the webhooks, and of the Secret. */}}
{{- define "operator-common.webhookName" -}}
{{- printf "%s-webhook" (include "operator-common.fullname" .) -}}
{{- end -}}

{{/* operator-common.webhooks: every object that webhooks need, as one YAML stream. */}}
{{- define "operator-common.webhooks" -}}
{{- if include "operator-common.hasWebhooks" . -}}
{{ include "operator-common.webhookService" . }}
---
{{ include "operator-common.webhookSecret" . }}
---
{{ include "operator-common.webhookConfiguration" . }}
{{- if .Values.rbac.create }}
---
{{ include "operator-common.role" (dict "root" . "name" (include "operator-common.webhookName" .) "namespace" .Release.Namespace "rules" (include "operator-common.webhookRules" . | fromYamlArray)) }}
---
{{ include "operator-common.role" (dict "root" . "name" (printf "%s-webhook" (include "operator-common.clusterName" .)) "namespace" "" "rules" (include "operator-common.webhookClusterRules" . | fromYamlArray)) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* operator-common.webhookRules: the certificate, and no other Secret. */}}
{{- define "operator-common.webhookRules" -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "operator-common.webhookName" . }}]
  verbs: [get, update]
{{- end -}}

{{/* operator-common.webhookClusterRules: this webhook configuration, and no other. */}}
{{- define "operator-common.webhookClusterRules" -}}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  resourceNames: [{{ include "operator-common.clusterName" . }}]
  verbs: [get, patch]
{{- end -}}

{{/* operator-common.webhookService: how the API server reaches a replica; each one answers. */}}
{{- define "operator-common.webhookService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "operator-common.webhookName" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  selector:
    {{- include "operator-common.selectorLabels" . | nindent 4 }}
  ports:
    - name: webhook
      port: 443
      targetPort: webhook
{{- end -}}

{{/*
operator-common.webhookSecret: where replicas keep the certificate. It is empty here, so an upgrade
leaves alone what is in it, and an uninstall takes it away.
*/}}
{{- define "operator-common.webhookSecret" -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ include "operator-common.webhookName" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
type: Opaque
{{- end -}}

{{/*
operator-common.webhookConfiguration: what the API server asks, from files/webhooks.yaml. A webhook
never keeps anything from being created: whoever cannot be asked is passed over. caBundle is the
operator's to fill in. Only watched namespaces are asked about.
*/}}
{{- define "operator-common.webhookConfiguration" -}}
{{- $root := . -}}
{{- $watched := include "operator-common.watchedNamespaces" . | fromJson -}}
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: {{ include "operator-common.clusterName" . }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
webhooks:
  {{- range (.Files.Get "files/webhooks.yaml" | fromYaml).webhooks }}
  - name: {{ .name }}
    admissionReviewVersions: [v1]
    sideEffects: None
    failurePolicy: Ignore
    matchPolicy: Equivalent
    reinvocationPolicy: IfNeeded
    timeoutSeconds: 3
    clientConfig:
      service:
        namespace: {{ $root.Release.Namespace }}
        name: {{ include "operator-common.webhookName" $root }}
        port: 443
        path: {{ .path }}
    namespaceSelector:
      matchLabels:
        {{- toYaml .namespaceLabels | nindent 8 }}
      {{- if not $watched.all }}
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: In
          values: {{ toJson $watched.names }}
      {{- end }}
    rules:
      {{- toYaml .rules | nindent 6 }}
  {{- end }}
{{- end -}}
