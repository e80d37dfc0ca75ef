{{/*
operator-common.notes: the end of the text that helm prints after an install or an upgrade. The
NOTES.txt of a chart first shows what to apply; this part shows how to check the operator, and which
values to consider.
*/}}
{{- define "operator-common.notes" -}}
{{- $name := include "operator-common.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $watched := include "operator-common.watchedNamespaces" . | fromJson -}}
The operator reconciles objects in {{ ternary (ternary (printf "the namespaces that match %s" $watched.selector) "all namespaces" (not (empty $watched.selector))) (printf "the namespace%s %s" (ternary "s" "" (gt (len $watched.names) 1)) (join ", " $watched.names)) $watched.all }}.
{{- include "operator-common.identityNotes" . }}
{{- if not $watched.all }}
Other namespaces are not watched. To change this, upgrade with --set watch.namespaces='{team-a,team-b}' or
--set watch.clusterWide=true.
{{- end }}

The operator runs the image {{ include "operator-common.image" . }}.
{{- if and .Values.rbac.create (not .Values.rbac.clusterRoles) }}

Cluster-wide permissions are not part of this release (rbac.clusterRoles=false). An administrator creates them with the
values of this release:
  helm template {{ .Release.Name }} CHART --namespace {{ .Release.Namespace }} --values VALUES --set rbac.clusterRoles=true --show-only templates/cluster-rbac.yaml | kubectl apply --filename -
{{- end }}

Check the operator:
  kubectl -n {{ $namespace }} rollout status deployment/{{ $name }}
  kubectl -n {{ $namespace }} logs deployment/{{ $name }} --follow{{ if gt (int .Values.replicas) 1 }} --all-pods{{ end }}
  helm -n {{ $namespace }} test {{ .Release.Name }}

The plugin `kubectl slipway` lists objects that are not ready (`kubectl slipway problems`) and names the cause
(`kubectl slipway why KIND/NAME`).
{{- if not .Values.rbac.userRoles }}

This release does not extend the built-in roles view, edit and admin, so users of namespaces may lack access to the kinds of
this operator. To extend the roles in one release per cluster: --set rbac.userRoles=true
{{- end }}
{{- if le (int .Values.replicas) 1 }}

The operator has one replica, so the drain of its node interrupts it. To add a hot standby: --set replicas=2
{{- end }}
{{- if not (or .Values.serviceMonitor.enabled .Values.podMonitor.enabled) }}

Metrics are served on port {{ .Values.ports.metrics }} at /metrics. If the cluster has the Prometheus operator, enable monitoring:
  --set serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true
{{- end }}
{{- if not .Values.crds.install }}

The CRDs were not installed (crds.install=false). The operator waits until they exist.
{{- end }}
{{- if and .Values.crds.install (not .Values.crds.keep) }}

crds.keep is false: an uninstall deletes the CRDs and every object of their kinds.
{{- end }}
{{- $known := list "imageRegistry" "imagePullSecrets" "commonLabels" "commonAnnotations" "nodeSelector" "tolerations" "priorityClassName" "platformAssignsUserIds" -}}
{{- $unknown := list -}}
{{- range $key := keys .Values.global | sortAlpha -}}
{{- if not (has $key $known) -}}
{{- $unknown = append $unknown $key -}}
{{- end -}}
{{- end -}}
{{- with $unknown }}

The chart ignores these keys under global: {{ join ", " . }}. It reads {{ join ", " $known }}.
{{- end }}
{{- end -}}

{{/*
operator-common.reachesBeyond: not empty if the operator has permissions outside the namespace of its release, other
than reading.
*/}}
{{- define "operator-common.reachesBeyond" -}}
{{- $watched := include "operator-common.watchedNamespaces" . | fromJson -}}
{{- $beyond := or $watched.all (without $watched.names .Release.Namespace) -}}
{{- range (.Files.Get "files/rbac.yaml" | fromYaml).clusterRules -}}
{{- if without .verbs "get" "list" "watch" -}}
{{- $beyond = true -}}
{{- end -}}
{{- end -}}
{{- if $beyond -}}
true
{{- end -}}
{{- end -}}

{{/*
operator-common.identityNotes: a warning if people who may edit objects that the operator reconciles can become the
operator, although it may do more than they may.
*/}}
{{- define "operator-common.identityNotes" -}}
{{- $watched := include "operator-common.watchedNamespaces" . | fromJson -}}
{{- if and .Values.rbac.create (include "operator-common.reachesBeyond" .) }}
{{- if or $watched.all (has .Release.Namespace $watched.names) }}

WARNING: The operator has permissions outside the namespace {{ .Release.Namespace }}, and also reconciles objects in it. Anyone who may
create pods or tokens in this namespace, such as holders of the role edit, can act with all permissions of the operator.
Install it into a namespace that only administrators may enter, such as slipway-system
{{- if not $watched.all }}, and name the namespaces of users in
watch.namespaces
{{- end }}. See docs/explanation/operator-namespace.md.
{{- else }}
Anyone who may create pods or tokens in the namespace {{ .Release.Namespace }} can act with the permissions of the operator: grant roles
such as edit in it only to administrators. See docs/explanation/operator-namespace.md.
{{- end }}
{{- end }}
{{- end -}}
