{{/*
operator-common.validate: rejects combinations of values that the schema cannot detect. Each message
names the mistake and the remedy.
*/}}
{{- define "operator-common.validate" -}}
{{- if has "*" (.Values.watch.namespaces | default list) -}}
{{- fail "watch.namespaces: * is not a namespace: leave it empty and set watch.clusterWide to true" -}}
{{- end -}}
{{- if and .Values.watch.clusterWide .Values.watch.namespaces -}}
{{- fail "watch.clusterWide and watch.namespaces exclude each other: set clusterWide to false, or leave namespaces empty" -}}
{{- end -}}
{{- if and (include "operator-common.namespaceSelector" .) (or .Values.watch.clusterWide .Values.watch.namespaces) -}}
{{- fail "watch.namespaceSelector excludes watch.clusterWide and watch.namespaces: set only one of them" -}}
{{- end -}}
{{- if and (eq (include "operator-common.setting" (list . "leaderElect")) "false") (gt (int .Values.replicas) 1) -}}
{{- fail "settings.leaderElect is false with replicas above 1: without leader election, replicas undo each other's changes; set replicas to 1, or leave leaderElect on" -}}
{{- end -}}
{{- include "operator-common.validateTimes" . -}}
{{- include "operator-common.validateLabels" . -}}
{{- end -}}

{{/*
operator-common.validateTimes: rejects times with which the operator would not start, or would be
killed during its shutdown.
*/}}
{{- define "operator-common.validateTimes" -}}
{{- $drain := include "operator-common.setting" (list . "drainTimeoutSeconds") | float64 -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) $drain -}}
{{- fail (printf "terminationGracePeriodSeconds (%v) must be greater than settings.drainTimeoutSeconds (%v): running reconciles would be killed" .Values.terminationGracePeriodSeconds $drain) -}}
{{- end -}}
{{- $lease := include "operator-common.setting" (list . "leaseDurationSeconds") | float64 -}}
{{- $renew := include "operator-common.setting" (list . "renewDeadlineSeconds") | float64 -}}
{{- $retry := include "operator-common.setting" (list . "retryPeriodSeconds") | float64 -}}
{{- if le $lease $renew -}}
{{- fail (printf "settings.leaseDurationSeconds (%v) must be greater than settings.renewDeadlineSeconds (%v): a standby would take over while the leader still works" $lease $renew) -}}
{{- end -}}
{{- if le $renew (mulf $retry 1.2) -}}
{{- fail (printf "settings.renewDeadlineSeconds (%v) must be greater than 1.2 times settings.retryPeriodSeconds (%v): the leader could try to renew only once" $renew $retry) -}}
{{- end -}}
{{- end -}}

{{/* operator-common.validateLabels: rejects labels that the chart sets, some of which are used in selectors. */}}
{{- define "operator-common.validateLabels" -}}
{{- $own := include "operator-common.labels" . | fromYaml -}}
{{- $places := dict "podLabels" .Values.podLabels "serviceMonitor.labels" .Values.serviceMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels "dashboard.labels" .Values.dashboard.labels -}}
{{- range $place, $labels := $places -}}
{{- range $label, $_ := $labels -}}
{{- if hasKey $own $label -}}
{{- fail (printf "%s: %s is a label of the chart's own and cannot be set: remove it" $place $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
