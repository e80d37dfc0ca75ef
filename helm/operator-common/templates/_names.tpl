{{/*
Names, labels and the image. Each template takes the root context of the calling chart.
*/}}

{{/*
operator-common.id: the id of the operator. It is the name of the chart, unless a parent chart
sets an alias for this dependency. Environment variables, Lease and labels use the id.
*/}}
{{- define "operator-common.id" -}}
{{- (.Files.Get "files/settings.yaml" | fromYaml).operator -}}
{{- end -}}

{{/*
operator-common.fullname: name of every object of a release. It is the release name if that contains
the name of the chart (`helm install podset` gives `podset`), otherwise `<release>-<chart>`. Truncated
to 50 characters, so that the longest suffix still fits into 63. Dots are replaced, because they are
valid in the name of a release but not in the name of a Service.
*/}}
{{- define "operator-common.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- end -}}
{{- $name | replace "." "-" | trunc 50 | trimAll "-" -}}
{{- end -}}

{{/*
operator-common.clusterName: name of cluster-scoped objects. It contains the namespace, because an
operator can be installed under the same release name in many namespaces.
*/}}
{{- define "operator-common.clusterName" -}}
{{- $name := printf "%s-%s" (include "operator-common.fullname" .) .Release.Namespace -}}
{{- if gt (len $name) 63 -}}
{{- $name = printf "%s-%s" ($name | trunc 54) ($name | sha256sum | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/*
operator-common.selectorLabels: labels that identify the pods of this operator. An upgrade cannot change
them, so they must not depend on values.
*/}}
{{- define "operator-common.selectorLabels" -}}
app.kubernetes.io/name: {{ include "operator-common.id" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* operator-common.identity: labels of objects that selectors must not mistake for a pod of the operator. */}}
{{- define "operator-common.identity" -}}
app.kubernetes.io/name: {{ include "operator-common.id" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: slipway
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* operator-common.labels: labels of every object. */}}
{{- define "operator-common.labels" -}}
{{ include "operator-common.identity" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{/* operator-common.serviceAccountName: the service account that the operator runs as. */}}
{{- define "operator-common.serviceAccountName" -}}
{{- $default := ternary (include "operator-common.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $default -}}
{{- end -}}

{{/* operator-common.registry: registry of the images; the registry of a parent chart takes precedence. */}}
{{- define "operator-common.registry" -}}
{{- .Values.global.imageRegistry | default .Values.image.registry -}}
{{- end -}}

{{/* operator-common.image: reference of the image; a digest takes precedence over the tag. */}}
{{- define "operator-common.image" -}}
{{- $image := .Values.image -}}
{{- $name := list (include "operator-common.registry" .) $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.defaultImage: the image for a setting that names an image and is not set. Takes root
and setting (an entry of files/settings.yaml). Injectors run the image of the operator, and consumers an
image that a release publishes next to it. Other images come from the registry of a parent chart, if
there is one. Empty means the default of the setting.
*/}}
{{- define "operator-common.defaultImage" -}}
{{- $image := .root.Values.image -}}
{{- $registry := include "operator-common.registry" .root -}}
{{- if eq .setting.name "injectorImage" -}}
{{- include "operator-common.image" .root -}}
{{- else if and (eq .setting.name "consumerImage") (ne $image.pullPolicy "Never") -}}
{{- printf "%s-app:%s" (list $registry $image.repository | compact | join "/") ($image.tag | default .root.Chart.AppVersion) -}}
{{- else if and (hasSuffix "Image" .setting.name) .setting.default .root.Values.global.imageRegistry -}}
{{- printf "%s/%s" .root.Values.global.imageRegistry .setting.default -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.watchedNamespaces: the namespaces whose objects are reconciled, as JSON for `fromJson`:
{"all": bool, "names": [...], "selector": "a=b"}. With a selector, permissions are granted in all
namespaces, because the matching namespaces are not known in advance.
*/}}
{{- define "operator-common.watchedNamespaces" -}}
{{- $names := .Values.watch.namespaces | default (list .Release.Namespace) | uniq | sortAlpha -}}
{{- $selector := include "operator-common.namespaceSelector" . -}}
{{- $all := or .Values.watch.clusterWide (not (empty $selector)) -}}
{{- dict "all" $all "names" (ternary (list) $names $all) "selector" $selector | toJson -}}
{{- end -}}

{{/* operator-common.namespaceSelector: watch.namespaceSelector in the syntax of kubectl -l. */}}
{{- define "operator-common.namespaceSelector" -}}
{{- $parts := list -}}
{{- $selector := .Values.watch.namespaceSelector | default dict -}}
{{- range $label, $value := $selector.matchLabels -}}
{{- $parts = append $parts (printf "%s=%s" $label $value) -}}
{{- end -}}
{{- range $selector.matchExpressions -}}
{{- $one := .key -}}
{{- if eq .operator "DoesNotExist" -}}
{{- $one = printf "!%s" .key -}}
{{- else if ne .operator "Exists" -}}
{{- $one = printf "%s %s (%s)" .key (lower .operator) (join "," .values) -}}
{{- end -}}
{{- $parts = append $parts $one -}}
{{- end -}}
{{- join "," $parts -}}
{{- end -}}

{{/*
operator-common.guardedBinding: name of the RoleBinding in a watched namespace other than the namespace
of the release. The operator keeps a finalizer on it, so that it can finish its clean-up if the
namespace is deleted. Operators that set no finalizers on their objects do not need it.
*/}}
{{- define "operator-common.guardedBinding" -}}
{{- if (.Files.Get "files/rbac.yaml" | fromYaml).finalizers -}}
{{- printf "%s-watched" (include "operator-common.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* operator-common.envPrefix: prefix of the environment variables of the settings. */}}
{{- define "operator-common.envPrefix" -}}
{{- printf "%s_" (include "operator-common.id" . | upper) -}}
{{- end -}}
