{{/*
operator-common.service: how Prometheus finds the metrics of each replica, and `helm test` the
probes. No traffic of users goes through it.
*/}}
{{- define "operator-common.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "operator-common.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
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

{{/*
operator-common.networkPolicy: nothing comes in but scrapes and probes; nothing goes out but name
lookups, the API server and, where traces are on, the collector.
*/}}
{{- define "operator-common.networkPolicy" -}}
{{- if .Values.networkPolicy.enabled -}}
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
    # The kubelet's address is not known here, and the probes say no more than ok.
    - ports:
        - port: probes
    {{- if include "operator-common.hasWebhooks" . }}
    # Neither is that of the API server, which trusts the certificate and no one else.
    - ports:
        - port: webhook
    {{- end }}
  egress:
    {{- include "operator-common.egress" . | nindent 4 }}
{{- end -}}
{{- end -}}

{{/* operator-common.egress: the rules of what may go out. */}}
{{- define "operator-common.egress" -}}
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: kube-system
      podSelector:
        matchLabels:
          k8s-app: kube-dns
  ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
# The API server. Policies see its address behind the Service, which is a node's and its own port.
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
{{- with .Values.tracing.endpoint }}
{{- $url := urlParse . }}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) }}
# The collector of the traces.
- ports:
    - port: {{ $port | default (ternary "443" "80" (eq $url.scheme "https")) }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
