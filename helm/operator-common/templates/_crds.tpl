{{/*
operator-common.crds: the CRDs of files/crds/ (generated), as one YAML stream. They are templates,
because Helm never upgrades CRDs in its own crds/ directory.
*/}}
{{- define "operator-common.crds" -}}
{{- include "operator-common.decorate" (list . (include "operator-common.crdStream" .)) -}}
{{- end -}}

{{/* operator-common.crdStream: the CRDs without common labels and annotations. */}}
{{- define "operator-common.crdStream" -}}
{{- if .Values.crds.install -}}
{{- $root := . -}}
{{- range $path, $_ := .Files.Glob "files/crds/*.yaml" }}
{{- $crd := $root.Files.Get $path | fromYaml }}
{{- $labels := include "operator-common.labels" $root | fromYaml }}
{{- $_ := set $crd.metadata "labels" (merge $labels ($crd.metadata.labels | default dict)) }}
{{- $keep := ternary (dict "helm.sh/resource-policy" "keep") dict $root.Values.crds.keep }}
{{- with merge $keep ($crd.metadata.annotations | default dict) $root.Values.crds.annotations }}
{{- $_ := set $crd.metadata "annotations" . }}
{{- end }}
---
{{ toYaml $crd }}
{{- end }}
{{- end -}}
{{- end -}}
