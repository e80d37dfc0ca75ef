{{/*
operator-common.operator: every object of an operator's chart except CRDs and permissions, as one YAML
stream. A template that renders nothing leaves an empty document, which Helm removes.
*/}}
{{- define "operator-common.operator" -}}
{{- $root := . -}}
{{- range list "serviceAccount" "lease" "deployment" "podDisruptionBudget" "service" "webhooks" "signing" "networkPolicy" "hooksNetworkPolicy" "ciliumPolicy" "hooksCiliumPolicy" "serviceMonitor" "podMonitor" "prometheusRule" "dashboardConfigMap" "cleanup" "test" "extraObjects" }}
---
{{ include "operator-common.decorate" (list $root (include (printf "operator-common.%s" .) $root)) }}
{{- end }}
{{- end -}}

{{/* operator-common.extraObjects: the objects of the user, as one YAML stream. */}}
{{- define "operator-common.extraObjects" -}}
{{- range .Values.extraObjects }}
---
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end -}}

{{/*
operator-common.decorate: adds the common labels and annotations to every object of a YAML stream and
to the pods that it creates. Labels and annotations of the object take precedence. Takes a list of the
root context and the stream.
*/}}
{{- define "operator-common.decorate" -}}
{{- $root := first . -}}
{{- $common := dict -}}
{{- range $name := list "labels" "annotations" -}}
{{- $key := printf "common%s" (title $name) -}}
{{- $_ := set $common $name (merge dict (get $root.Values $key) (get $root.Values.global $key)) -}}
{{- end -}}
{{- if and (empty $common.labels) (empty $common.annotations) -}}
{{- last . -}}
{{- else -}}
{{- range splitList "\n---\n" (printf "\n%s\n" (last .)) -}}
{{- $object := fromYaml . -}}
{{- if $object -}}
{{- $parts := list $object -}}
{{- with dig "spec" "template" "metadata" dict $object -}}
{{- $parts = append $parts $object.spec.template -}}
{{- end -}}
{{- range $part := $parts -}}
{{- range $name, $values := $common -}}
{{- if $values -}}
{{- $_ := set $part.metadata $name (merge dict (get $part.metadata $name | default dict) $values) -}}
{{- end -}}
{{- end -}}
{{- end }}
---
{{ toYaml $object }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
