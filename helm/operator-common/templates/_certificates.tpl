{{/*
The certificate of the webhooks if others issue it. cert-manager writes it into a Secret, from the objects that
are created here; or the user names a Secret. The operator reads the Secret, and publishes its CA bundle.
*/}}

{{/* operator-common.certificateSecret: name of the Secret that others write, empty if the operator issues the certificate. */}}
{{- define "operator-common.certificateSecret" -}}
{{- if .Values.webhooks.certManager.enabled -}}
{{- printf "%s-tls" (include "operator-common.webhookName" .) -}}
{{- else -}}
{{- .Values.webhooks.certificateSecret -}}
{{- end -}}
{{- end -}}

{{/* operator-common.certificate: a Certificate, and an Issuer if the user names none, as one YAML stream. */}}
{{- define "operator-common.certificate" -}}
{{- $name := include "operator-common.webhookName" . -}}
{{- $values := .Values.webhooks.certManager -}}
{{- if not $values.issuerRef.name -}}
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  selfSigned: {}
---
{{ end -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  secretName: {{ include "operator-common.certificateSecret" . }}
  {{- if not $values.issuerRef.name }}
  # The subject of a self-signed certificate is its issuer as well, which must not be empty.
  commonName: {{ $name }}
  {{- end }}
  # The API server requires the first name.
  dnsNames:
    - {{ $name }}.{{ .Release.Namespace }}.svc
    - {{ $name }}.{{ .Release.Namespace }}
    - {{ $name }}.{{ .Release.Namespace }}.svc.cluster.local
  usages: [digital signature, key encipherment, server auth]
  duration: {{ $values.duration }}
  renewBefore: {{ $values.renewBefore }}
  privateKey:
    algorithm: {{ $values.privateKeyAlgorithm }}
    rotationPolicy: Always
  issuerRef:
    name: {{ $values.issuerRef.name | default $name }}
    kind: {{ $values.issuerRef.kind }}
    group: {{ $values.issuerRef.group }}
{{- end -}}

{{/*
operator-common.certificateWarningHours: the remaining validity of the certificate, in hours, below which its
renewal has failed for long: a week, or less if cert-manager renews it later.
*/}}
{{- define "operator-common.certificateWarningHours" -}}
{{- if .Values.webhooks.certManager.enabled -}}
{{- min 168 (max 1 (div (trimSuffix "h" .Values.webhooks.certManager.renewBefore | int) 2)) -}}
{{- else -}}
168
{{- end -}}
{{- end -}}

{{/* operator-common.validateCertificate: rejects values for the certificate that contradict each other or have no effect. */}}
{{- define "operator-common.validateCertificate" -}}
{{- $values := .Values.webhooks.certManager -}}
{{- if and $values.enabled .Values.webhooks.certificateSecret -}}
{{- fail "webhooks.certManager.enabled and webhooks.certificateSecret exclude each other: cert-manager writes a Secret of its own; set only one of them" -}}
{{- end -}}
{{- if eq (.Values.webhooks.certificateSecret | default "") (include "operator-common.webhookName" .) -}}
{{- fail (printf "webhooks.certificateSecret must not be %s: an upgrade deletes this Secret of the operator; choose another name" .Values.webhooks.certificateSecret) -}}
{{- end -}}
{{- if and (include "operator-common.certificateSecret" .) (not (include "operator-common.hasWebhooks" .)) -}}
{{- $value := ternary "webhooks.certManager.enabled" "webhooks.certificateSecret" $values.enabled -}}
{{- $remedy := ternary "set settings.webhooks to true" "this operator has no webhooks, so remove the value" (not (empty (.Files.Get "files/webhooks.yaml"))) -}}
{{- fail (printf "%s has no effect without webhooks: %s" $value $remedy) -}}
{{- end -}}
{{- if and (not $values.issuerRef.name) (ne (printf "%s.%s" $values.issuerRef.kind $values.issuerRef.group) "Issuer.cert-manager.io") -}}
{{- fail "webhooks.certManager.issuerRef.name is empty, so the chart creates an Issuer: set the name as well as kind and group, or none of them" -}}
{{- end -}}
{{- if ge (trimSuffix "h" $values.renewBefore | int) (trimSuffix "h" $values.duration | int) -}}
{{- fail (printf "webhooks.certManager.renewBefore (%s) must be less than webhooks.certManager.duration (%s): cert-manager refuses such a Certificate" $values.renewBefore $values.duration) -}}
{{- end -}}
{{- end -}}
