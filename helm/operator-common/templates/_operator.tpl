{{/*
operator-common.operator: every object of an operator's chart, as one YAML stream. Templates that
have nothing to render leave an empty document, which Helm drops.
*/}}
{{- define "operator-common.operator" -}}
{{- $root := . -}}
{{- range list "serviceAccount" "rbac" "userRoles" "lease" "deployment" "podDisruptionBudget" "service" "webhooks" "networkPolicy" "hooksNetworkPolicy" "serviceMonitor" "prometheusRule" "dashboardConfigMap" "cleanup" "test" }}
---
{{ include (printf "operator-common.%s" .) $root }}
{{- end }}
{{- end -}}
