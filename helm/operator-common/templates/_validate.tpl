{{/*
operator-common.validate: refuse combinations of values that the schema cannot see. Each message
says what is wrong and what to do.
*/}}
{{- define "operator-common.validate" -}}
{{- if has "*" (.Values.watch.namespaces | default list) -}}
{{- fail "watch.namespaces: * is no namespace: leave it empty and set watch.clusterWide to true" -}}
{{- end -}}
{{- if and .Values.watch.clusterWide .Values.watch.namespaces -}}
{{- fail "watch.clusterWide and watch.namespaces exclude each other: set clusterWide to false, or leave namespaces empty" -}}
{{- end -}}
{{- if and (eq (include "operator-common.setting" (list . "leaderElect")) "false") (gt (int .Values.replicas) 1) -}}
{{- fail "settings.leaderElect is false with replicas above 1: replicas without an election undo each other's work; set replicas to 1, or leave leaderElect on" -}}
{{- end -}}
{{- include "operator-common.validateTimes" . -}}
{{- include "operator-common.validateLabels" . -}}
{{- end -}}

{{/*
operator-common.validateTimes: refuse times with which the operator would not start, or would be
killed while it ends.
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
{{- fail (printf "settings.leaseDurationSeconds (%v) must be greater than settings.renewDeadlineSeconds (%v): a standby would take over from a leader that still works" $lease $renew) -}}
{{- end -}}
{{- if le $renew (mulf $retry 1.2) -}}
{{- fail (printf "settings.renewDeadlineSeconds (%v) must be greater than 1.2 times settings.retryPeriodSeconds (%v): a leader would have one try only" $renew $retry) -}}
{{- end -}}
{{- end -}}

{{/* operator-common.validateLabels: refuse labels that the chart sets itself, some to select by. */}}
{{- define "operator-common.validateLabels" -}}
{{- $own := include "operator-common.labels" . | fromYaml -}}
{{- $places := dict "podLabels" .Values.podLabels "serviceMonitor.labels" .Values.serviceMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels "dashboard.labels" .Values.dashboard.labels -}}
{{- range $place, $labels := $places -}}
{{- range $label, $_ := $labels -}}
{{- if hasKey $own $label -}}
{{- fail (printf "%s: %s is a label of the chart's own, which may not be set: leave it out" $place $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
