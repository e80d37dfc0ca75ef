{{/*
operator-common.notes: what helm prints after an install or an upgrade. The chart's NOTES.txt says
before it what to apply; this says how to see what happens, and which values are worth a thought.
*/}}
{{- define "operator-common.notes" -}}
{{- $name := include "operator-common.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $watched := include "operator-common.watchedNamespaces" . | fromJson -}}
It works on objects in {{ ternary "all namespaces" (printf "the namespace%s %s" (ternary "s" "" (gt (len $watched.names) 1)) (join ", " $watched.names)) $watched.all }}.
{{- if not $watched.all }}
Other namespaces: --set watch.namespaces='{team-a,team-b}', or --set watch.clusterWide=true.
{{- end }}

It runs the image {{ include "operator-common.image" . }}.
{{- if not (or .Values.image.registry .Values.image.digest) }}
Where your cluster cannot pull that: --set image.registry=registry.example.com, and image.repository and image.tag.
{{- end }}

See what it does:
  kubectl -n {{ $namespace }} rollout status deployment/{{ $name }}
  kubectl -n {{ $namespace }} logs deployment/{{ $name }} --follow{{ if gt (int .Values.replicas) 1 }} --all-pods{{ end }}
  helm -n {{ $namespace }} test {{ .Release.Name }}
{{- if le (int .Values.replicas) 1 }}

One replica runs, so an upgrade of its node is a pause. A hot standby: --set replicas=2
{{- end }}
{{- if not .Values.serviceMonitor.enabled }}

Metrics are at port 8080, path /metrics. With the Prometheus operator in the cluster:
  --set serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true
{{- end }}
{{- if not .Values.crds.install }}

The CRDs were not installed (crds.install=false): the operator waits until they are there.
{{- end }}
{{- if and .Values.crds.install (not .Values.crds.keep) }}

crds.keep is false: an uninstall deletes the CRDs, and with them every object of their kinds.
{{- end }}
{{- end -}}
