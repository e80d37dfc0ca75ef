{{/*
operator-common.operator: every object of an operator's chart, as one YAML stream. A template that
renders nothing leaves an empty document, which Helm removes.
*/}}
{{- define "operator-common.operator" -}}
{{- $root := . -}}
{{- range list "serviceAccount" "rbac" "userRoles" "lease" "deployment" "podDisruptionBudget" "service" "webhooks" "signing" "networkPolicy" "hooksNetworkPolicy" "serviceMonitor" "prometheusRule" "dashboardConfigMap" "cleanup" "test" }}
---
{{ include (printf "operator-common.%s" .) $root }}
{{- end }}
{{- end -}}
