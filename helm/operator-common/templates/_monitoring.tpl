{{/*
Objects for the Prometheus operator and for Grafana. The label `job` identifies the installation of
a metric; a ServiceMonitor sets it to the name of the Service.
*/}}

{{/* operator-common.serviceMonitor: makes Prometheus scrape every replica. */}}
{{- define "operator-common.serviceMonitor" -}}
{{- if .Values.serviceMonitor.enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "operator-common.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
    {{- with .Values.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  endpoints:
    - port: metrics
      interval: {{ .Values.serviceMonitor.interval }}
      scrapeTimeout: {{ .Values.serviceMonitor.scrapeTimeout }}
      {{- with .Values.serviceMonitor.metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
  selector:
    matchLabels:
      {{- include "operator-common.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{/*
operator-common.prometheusRule: the alerts of the library (operator-common.alerts), and the alerts in
files/alerts.yaml of the operator's chart, if that file exists. SELECTOR in that file is replaced by
the labels of this installation.
*/}}
{{- define "operator-common.prometheusRule" -}}
{{- if .Values.prometheusRule.enabled -}}
{{- $rules := (include "operator-common.alerts" . | fromYaml).rules -}}
{{- with .Files.Get "files/alerts.yaml" -}}
{{- $selector := printf "job=%q" (include "operator-common.fullname" $) -}}
{{- $rules = concat $rules (. | replace "SELECTOR" $selector | fromYaml).rules -}}
{{- end -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ include "operator-common.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
    {{- with .Values.prometheusRule.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  groups:
    - name: {{ include "operator-common.fullname" . }}
      rules:
        {{- toYaml $rules | nindent 8 }}
{{- end -}}
{{- end -}}

{{/*
operator-common.dashboardConfigMap: the dashboard as a ConfigMap, which the sidecar of Grafana finds by
its label.
*/}}
{{- define "operator-common.dashboardConfigMap" -}}
{{- if .Values.dashboard.enabled -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "operator-common.fullname" . }}-dashboard
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
    {{- with .Values.dashboard.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.dashboard.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  {{ include "operator-common.id" . }}.json: |
    {{- include "operator-common.dashboard" . | nindent 4 }}
{{- end -}}
{{- end -}}
