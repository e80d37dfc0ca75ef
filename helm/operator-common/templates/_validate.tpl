{{/*
operator-common.validate: refuse combinations of values that the schema cannot see. Each message
says what is wrong and what to do.
*/}}
{{- define "operator-common.validate" -}}
{{- if and .Values.watch.clusterWide .Values.watch.namespaces -}}
{{- fail "watch.clusterWide and watch.namespaces exclude each other: set clusterWide to false, or leave namespaces empty" -}}
{{- end -}}
{{- if and (eq (toString .Values.settings.leaderElect) "false") (gt (int .Values.replicas) 1) -}}
{{- fail "settings.leaderElect is false with replicas above 1: replicas without an election undo each other's work; set replicas to 1, or leave leaderElect on" -}}
{{- end -}}
{{- $drain := .Values.settings.drainTimeoutSeconds | default 20 -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) (float64 $drain) -}}
{{- fail (printf "terminationGracePeriodSeconds (%v) must be greater than settings.drainTimeoutSeconds (%v): running reconciles would be killed" .Values.terminationGracePeriodSeconds $drain) -}}
{{- end -}}
{{- end -}}
