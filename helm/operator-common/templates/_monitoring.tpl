{{/*
Objects for the Prometheus operator and for Grafana. The label `job` identifies the installation of
a metric; a ServiceMonitor sets it to the name of the Service.
*/}}

{{/* operator-common.serviceMonitor: makes Prometheus scrape every replica, through the Service. */}}
{{- define "operator-common.serviceMonitor" -}}
{{- if .Values.serviceMonitor.enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
{{ include "operator-common.monitor" (dict "root" . "values" .Values.serviceMonitor "endpoints" "endpoints" "relabelings" list) }}
{{- end -}}
{{- end -}}

{{/*
operator-common.podMonitor: makes Prometheus scrape every replica, without the Service. The first
relabeling sets the label job to the value that a ServiceMonitor gives it, because alerts and dashboards
select by it.
*/}}
{{- define "operator-common.podMonitor" -}}
{{- if .Values.podMonitor.enabled -}}
{{- $job := dict "targetLabel" "job" "replacement" (include "operator-common.fullname" .) -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
{{ include "operator-common.monitor" (dict "root" . "values" .Values.podMonitor "endpoints" "podMetricsEndpoints" "relabelings" (list $job)) }}
{{- end -}}
{{- end -}}

{{/*
operator-common.monitor: metadata and spec of a ServiceMonitor or PodMonitor. Takes root, values,
endpoints (the name of the list of endpoints) and relabelings (the relabelings of the chart).
*/}}
{{- define "operator-common.monitor" -}}
{{- $root := .root -}}
{{- $secure := eq (include "operator-common.setting" (list $root "metricsSecure")) "true" -}}
{{- $tls := .values.tlsConfig | default (ternary (dict "insecureSkipVerify" true) dict $secure) -}}
{{- $scheme := ternary "https" .values.scheme $secure -}}
{{- $namespace := .values.namespace | default $root.Release.Namespace -}}
metadata:
  name: {{ include "operator-common.fullname" $root }}
  namespace: {{ $namespace }}
  labels:
    {{- include "operator-common.labels" $root | nindent 4 }}
    {{- with .values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{ .endpoints }}:
    - port: metrics
      interval: {{ .values.interval }}
      scrapeTimeout: {{ .values.scrapeTimeout }}
      {{- if .values.honorLabels }}
      honorLabels: true
      {{- end }}
      {{- if ne $scheme "http" }}
      scheme: {{ $scheme }}
      {{- end }}
      {{- if .values.authorization }}
      authorization:
        {{- toYaml .values.authorization | nindent 8 }}
      {{- else if $secure }}
      # The token of Prometheus itself; a PodMonitor has no such field.
      bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
      {{- end }}
      {{- with $tls }}
      tlsConfig:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with concat .relabelings .values.relabelings }}
      relabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- if ne $namespace $root.Release.Namespace }}
  namespaceSelector:
    matchNames: [{{ $root.Release.Namespace }}]
  {{- end }}
  selector:
    matchLabels:
      {{- include "operator-common.selectorLabels" $root | nindent 6 }}
{{- end -}}

{{/*
operator-common.allAlerts: the alerts of the library (operator-common.alerts), and the alerts in
files/alerts.yaml of the operator's chart, if that file exists. SELECTOR in that file is replaced by
the labels of this installation.
*/}}
{{- define "operator-common.allAlerts" -}}
{{- $rules := (include "operator-common.alerts" . | fromYaml).rules -}}
{{- with .Files.Get "files/alerts.yaml" -}}
{{- $rules = concat $rules (. | replace "SELECTOR" (include "operator-common.seriesSelector" $) | fromYaml).rules -}}
{{- end -}}
{{- dict "rules" $rules | toYaml -}}
{{- end -}}

{{/*
operator-common.seriesSelector: the labels of the series of this installation. Tenants choose the job of their own
monitors, but not the namespace.
*/}}
{{- define "operator-common.seriesSelector" -}}
job={{ include "operator-common.fullname" . | quote }},namespace={{ .Release.Namespace | quote }}
{{- end -}}

{{/*
operator-common.prometheusRule: the alerts as an object of the Prometheus operator. The name of an alert in
prometheusRule.disabledAlerts must exist: an upgrade that renames an alert would otherwise enable it again.
*/}}
{{- define "operator-common.prometheusRule" -}}
{{- if .Values.prometheusRule.enabled -}}
{{- $disabled := .Values.prometheusRule.disabledAlerts -}}
{{- $rules := list -}}
{{- $names := list -}}
{{- range (include "operator-common.allAlerts" . | fromYaml).rules -}}
{{- $names = append $names .alert -}}
{{- if not (has .alert $disabled) -}}
{{- $_ := set . "labels" (merge dict $.Values.prometheusRule.alertLabels .labels) -}}
{{- if $.Values.prometheusRule.runbookUrl -}}
{{- /* Each alert is a heading of docs/howto/alerts.md. */ -}}
{{- $_ := set .annotations "runbook_url" (printf "%s#%s" $.Values.prometheusRule.runbookUrl (lower .alert)) -}}
{{- end -}}
{{- $rules = append $rules . -}}
{{- end -}}
{{- end -}}
{{- range $disabled -}}
{{- if not (has . $names) -}}
{{- fail (printf "prometheusRule.disabledAlerts: the chart has no alert %s; its alerts are %s" . (join ", " $names)) -}}
{{- end -}}
{{- end -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ include "operator-common.fullname" . }}
  namespace: {{ .Values.prometheusRule.namespace | default .Release.Namespace }}
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
operator-common.dashboardConfigMap: the dashboards as a ConfigMap, which the sidecar of Grafana finds by
its label.
*/}}
{{- define "operator-common.dashboardConfigMap" -}}
{{- if .Values.dashboard.enabled -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "operator-common.fullname" . }}-dashboard
  namespace: {{ .Values.dashboard.namespace | default .Release.Namespace }}
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
  {{- range $file, $dashboard := include "operator-common.dashboards" . | fromYaml }}
  {{ $file }}: |
    {{- $dashboard | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}
