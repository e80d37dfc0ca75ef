{{/*
operator-common.service: the Service through which Prometheus finds the metrics of each replica, and
`helm test` the probes. It carries no user traffic.
*/}}
{{- define "operator-common.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "operator-common.fullname" . }}
  {{- include "operator-common.serviceMetadata" . | nindent 2 }}
spec:
  {{- include "operator-common.serviceFamilies" . | nindent 2 }}
  selector:
    {{- include "operator-common.selectorLabels" . | nindent 4 }}
  ports:
    - name: metrics
      port: 8080
      targetPort: metrics
    - name: probes
      port: 8081
      targetPort: probes
{{- end -}}

{{/* operator-common.serviceMetadata: namespace, labels and annotations of a Service. */}}
{{- define "operator-common.serviceMetadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "operator-common.labels" . | nindent 2 }}
  {{- with .Values.service.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.service.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* operator-common.serviceFamilies: the IP families of a Service. */}}
{{- define "operator-common.serviceFamilies" -}}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* operator-common.networkPolicyFlavor: kind of the policies, kubernetes or cilium; empty without policies. */}}
{{- define "operator-common.networkPolicyFlavor" -}}
{{- ternary .Values.networkPolicy.flavor "" .Values.networkPolicy.enabled -}}
{{- end -}}

{{/*
operator-common.networkPolicy: allows ingress for scrapes, probes and webhooks, and egress to DNS, the API
server and, if tracing is enabled, the collector.
*/}}
{{- define "operator-common.networkPolicy" -}}
{{- if eq (include "operator-common.networkPolicyFlavor" .) "kubernetes" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "operator-common.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "operator-common.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports:
        - port: metrics
      {{- with .Values.networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    # Open to all: the address of the kubelet is not known here, and probes reveal nothing but ok.
    - ports:
        - port: probes
    {{- if include "operator-common.hasWebhooks" . }}
    # Open to all: the address of the API server is not known here either; it checks the certificate.
    - ports:
        - port: webhook
    {{- end }}
  egress:
    {{- include "operator-common.egress" . | nindent 4 }}
{{- end -}}
{{- end -}}

{{/*
operator-common.hooksNetworkPolicy: network access of the clean-up Job and the test. In a namespace that
denies egress by default, neither of them could finish without it, nor could an uninstall.
*/}}
{{- define "operator-common.hooksNetworkPolicy" -}}
{{- if eq (include "operator-common.networkPolicyFlavor" .) "kubernetes" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "operator-common.fullname" . }}-hooks
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ include "operator-common.id" . }}
      app.kubernetes.io/instance: {{ .Release.Name }}
    matchExpressions:
      - key: app.kubernetes.io/component
        operator: In
        values: [cleanup, test]
  policyTypes: [Ingress, Egress]
  egress:
    {{- include "operator-common.egressToServer" . | nindent 4 }}
    - to:
        - podSelector:
            matchLabels:
              {{- include "operator-common.selectorLabels" . | nindent 14 }}
      ports:
        - port: {{ .Values.ports.probes }}
{{- end -}}
{{- end -}}

{{/* operator-common.egressToServer: egress to DNS and the API server. */}}
{{- define "operator-common.egressToServer" -}}
{{ include "operator-common.egressToDns" . }}
# The API server. Policies apply to the endpoints behind the Service: a node address and its port.
- ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - port: {{ . }}
    {{- end }}
  {{- with .Values.networkPolicy.apiServer.cidrs }}
  to:
    {{- range . }}
    - ipBlock:
        cidr: {{ . }}
    {{- end }}
  {{- end }}
{{- end -}}

{{/* operator-common.egressToDns: egress to the DNS servers. */}}
{{- define "operator-common.egressToDns" -}}
- ports:
    {{- range .Values.networkPolicy.dns.ports }}
    - port: {{ . }}
      protocol: UDP
    - port: {{ . }}
      protocol: TCP
    {{- end }}
  {{- with .Values.networkPolicy.dns.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* operator-common.egress: all egress rules of the operator. */}}
{{- define "operator-common.egress" -}}
{{- include "operator-common.egressToServer" . }}
{{- include "operator-common.egressToOthers" . }}
{{- end -}}

{{/* operator-common.egressToOthers: egress to the collector of traces, and the rules of the user. */}}
{{- define "operator-common.egressToOthers" -}}
{{- with .Values.tracing.endpoint }}
{{- $url := urlParse . }}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) }}
# The collector of traces.
- ports:
    - port: {{ $port | default (ternary "443" "80" (eq $url.scheme "https")) }}
  {{- with $.Values.networkPolicy.tracesTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
