{{/*
Admission webhooks, for charts with files/webhooks.yaml, if settings.webhooks is true. The
operator writes the CA bundle into the objects that are created here. Unless others issue the certificate
(_certificates.tpl), the operator creates and renews it as well.
*/}}

{{/* operator-common.hasWebhooks: not empty if webhooks are enabled. */}}
{{- define "operator-common.hasWebhooks" -}}
{{- if and (eq (include "operator-common.setting" (list . "webhooks")) "true") (.Files.Get "files/webhooks.yaml") -}}
true
{{- end -}}
{{- end -}}

{{/* operator-common.webhookFile: the content of files/webhooks.yaml as JSON. */}}
{{- define "operator-common.webhookFile" -}}
{{- $file := .Files.Get "files/webhooks.yaml" | fromYaml -}}
{{- toJson (dict "webhooks" ($file.webhooks | default list)) -}}
{{- end -}}

{{/*
operator-common.webhooksOf: the webhooks of one type, as JSON for `fromJsonArray`. Takes a list of the root context
and Mutating or Validating.
*/}}
{{- define "operator-common.webhooksOf" -}}
{{- $found := list -}}
{{- range (include "operator-common.webhookFile" (first .) | fromJson).webhooks -}}
{{- if eq (ternary "Validating" "Mutating" (.validating | default false)) (last $) -}}
{{- $found = append $found . -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* operator-common.webhookName: name of the Service of the webhooks, and of the Secret that the operator writes. */}}
{{- define "operator-common.webhookName" -}}
{{- printf "%s-webhook" (include "operator-common.fullname" .) -}}
{{- end -}}

{{/* operator-common.webhooks: every object that webhooks need, as one YAML stream. */}}
{{- define "operator-common.webhooks" -}}
{{- if include "operator-common.hasWebhooks" . -}}
{{ include "operator-common.webhookService" . }}
{{- if .Values.webhooks.certManager.enabled }}
---
{{ include "operator-common.certificate" . }}
{{- else if not .Values.webhooks.certificateSecret }}
---
{{ include "operator-common.webhookSecret" . }}
{{- end }}
{{- $root := . -}}
{{- range list "Mutating" "Validating" }}
{{- with (include "operator-common.webhooksOf" (list $root .) | fromJsonArray) }}
---
{{ include "operator-common.webhookConfiguration" (dict "root" $root "webhooks" .) }}
{{- end }}
{{- end }}
---
{{ include "operator-common.webhookGuard" . }}
{{- end -}}
{{- end -}}

{{/* operator-common.webhookRole: the permissions of operator-common.webhookRules and their binding. */}}
{{- define "operator-common.webhookRole" -}}
{{ include "operator-common.role" (dict "root" . "name" (include "operator-common.webhookName" .) "namespace" .Release.Namespace "rules" (include "operator-common.webhookRules" . | fromYamlArray)) }}
{{- end -}}

{{/* operator-common.webhookRules: access to the Secret of the certificate and no other. */}}
{{- define "operator-common.webhookRules" -}}
{{- $issued := include "operator-common.certificateSecret" . -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ $issued | default (include "operator-common.webhookName" .) }}]
  verbs: {{ ternary "[get]" "[get, update]" (not (empty $issued)) }}
{{- end -}}

{{/*
operator-common.webhookClusterRules: access to this webhook configuration and to no other.
*/}}
{{- define "operator-common.webhookClusterRules" -}}
{{- range list "Mutating" "Validating" }}
{{- if include "operator-common.webhooksOf" (list $ .) | fromJsonArray }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [{{ lower . }}webhookconfigurations]
  resourceNames: [{{ include "operator-common.clusterName" $ }}]
  verbs: [get, patch]
{{- end }}
{{- end }}
{{- end -}}

{{/* operator-common.webhookService: the Service through which the API server reaches any replica. */}}
{{- define "operator-common.webhookService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "operator-common.webhookName" . }}
  {{- include "operator-common.serviceMetadata" . | nindent 2 }}
spec:
  {{- include "operator-common.serviceFamilies" . | nindent 2 }}
  selector:
    {{- include "operator-common.selectorLabels" . | nindent 4 }}
  ports:
    - name: webhook
      port: 443
      targetPort: webhook
{{- end -}}

{{/*
operator-common.webhookSecret: the Secret in which the replicas store the certificate. It is rendered without
data, so an upgrade keeps its content, and an uninstall deletes it.
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
operator-common.webhookGuard: an admission policy by which the operator changes nothing of a webhook but its CA
bundle. RBAC cannot restrict a patch to a field. Without the policy, the operator could send all objects of the
cluster to another server, and change them.
*/}}
{{- define "operator-common.webhookGuard" -}}
{{- $name := printf "%s-webhook" (include "operator-common.clusterName" .) -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [admissionregistration.k8s.io]
        apiVersions: [v1]
        operations: [UPDATE]
        resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  matchConditions:
    - name: this-operator
      expression: request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "operator-common.serviceAccountName" . }}'
  validations:
    - expression: >-
        object.webhooks.size() == oldObject.webhooks.size() &&
        object.webhooks.all(w, oldObject.webhooks.exists(o, w.name == o.name && w.rules == o.rules &&
        w.clientConfig.?service == o.clientConfig.?service && w.clientConfig.?url == o.clientConfig.?url
        {{- range list "failurePolicy" "matchPolicy" "namespaceSelector" "objectSelector" "matchConditions" "reinvocationPolicy" "timeoutSeconds" "sideEffects" "admissionReviewVersions" }} &&
        w.?{{ . }} == o.?{{ . }}
        {{- end }}))
      message: the operator changes only the CA bundle of its webhooks
      reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end -}}

{{/*
operator-common.webhookConfiguration: webhooks of one type that the API server calls, from files/webhooks.yaml.
Unless the file says otherwise, a webhook never blocks a write: the API server ignores one that it cannot reach. The
operator sets caBundle. The webhooks apply to watched namespaces only. Takes root and webhooks.
*/}}
{{- define "operator-common.webhookConfiguration" -}}
{{- $root := .root -}}
{{- $watched := include "operator-common.watchedNamespaces" $root | fromJson -}}
{{- $selector := $root.Values.watch.namespaceSelector | default dict -}}
apiVersion: admissionregistration.k8s.io/v1
kind: {{ ternary "Validating" "Mutating" ((first .webhooks).validating | default false) }}WebhookConfiguration
metadata:
  name: {{ include "operator-common.clusterName" $root }}
  labels:
    {{- include "operator-common.labels" $root | nindent 4 }}
webhooks:
  {{- range .webhooks }}
  - name: {{ .name }}
    admissionReviewVersions: [v1]
    sideEffects: None
    failurePolicy: {{ coalesce $root.Values.webhooks.failurePolicy .failurePolicy "Ignore" }}
    matchPolicy: Equivalent
    {{- if not .validating }}
    reinvocationPolicy: IfNeeded
    {{- end }}
    timeoutSeconds: {{ coalesce $root.Values.webhooks.timeoutSeconds .timeoutSeconds 3 }}
    {{- with .matchConditions }}
    matchConditions:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .objectLabels }}
    objectSelector:
      matchLabels:
        {{- toYaml . | nindent 8 }}
    {{- end }}
    clientConfig:
      service:
        namespace: {{ $root.Release.Namespace }}
        name: {{ include "operator-common.webhookName" $root }}
        port: 443
        path: {{ .path }}
    namespaceSelector:
      matchLabels:
        {{- merge (deepCopy (.namespaceLabels | default dict)) ($selector.matchLabels | default dict) | toYaml | nindent 8 }}
      {{- with $selector.matchExpressions }}
      matchExpressions:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.watch.excludedNamespaces }}
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values: {{ toJson . }}
      {{- end }}
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
