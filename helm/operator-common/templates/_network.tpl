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

{{/*
operator-common.hooksNetworkPolicy: what the clean-up Job and the test may do. Where a namespace lets
out nothing by default, neither would come to an end without it, and so no uninstall.
*/}}
{{- define "operator-common.hooksNetworkPolicy" -}}
{{- if .Values.networkPolicy.enabled -}}
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
  ingress: []
  egress:
    {{- include "operator-common.egressToServer" . | nindent 4 }}
    - to:
        - podSelector:
            matchLabels:
              {{- include "operator-common.selectorLabels" . | nindent 14 }}
      ports:
        - port: 8081
{{- end -}}
{{- end -}}

{{/* operator-common.egressToServer: name lookups and the API server. */}}
{{- define "operator-common.egressToServer" -}}
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
{{- end -}}

{{/* operator-common.egress: the rules of what may go out. */}}
{{- define "operator-common.egress" -}}
{{- include "operator-common.egressToServer" . }}
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
