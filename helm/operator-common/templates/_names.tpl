{{/*
Names, labels and the image. Every template below takes the root context of the calling chart.
*/}}

{{/*
operator-common.id: the operator, which is the name of its chart but where a chart that has it among
its dependencies gave it another. Variables, Lease and labels go by it.
*/}}
{{- define "operator-common.id" -}}
{{- (.Files.Get "files/settings.yaml" | fromYaml).operator -}}
{{- end -}}

{{/*
operator-common.fullname: name of every object of a release. It is the release name where that says
which operator it is (`helm install podset` gives `podset`), else `<release>-<chart>`. Cut to 50
characters, so that the longest suffix used here still fits in 63; dots may be in the name of a
release and not in that of a Service.
*/}}
{{- define "operator-common.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- end -}}
{{- $name | replace "." "-" | trunc 50 | trimAll "-" -}}
{{- end -}}

{{/*
operator-common.clusterName: name of cluster-scoped objects. It carries the namespace, since an
operator may be installed under the same release name in many namespaces.
*/}}
{{- define "operator-common.clusterName" -}}
{{- $name := printf "%s-%s" (include "operator-common.fullname" .) .Release.Namespace -}}
{{- if gt (len $name) 63 -}}
{{- $name = printf "%s-%s" ($name | trunc 54) ($name | sha256sum | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/*
operator-common.selectorLabels: what tells the pods of this operator from all others. They cannot
change in an upgrade, so nothing that is a value goes in.
*/}}
{{- define "operator-common.selectorLabels" -}}
app.kubernetes.io/name: {{ include "operator-common.id" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* operator-common.identity: labels of an object that must not count as a pod of the operator. */}}
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

{{/* operator-common.image: reference of the image; a digest wins over the tag. */}}
{{- define "operator-common.image" -}}
{{- $image := .Values.image -}}
{{- $name := list $image.registry $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.watchedNamespaces: the namespaces with objects to work on, as JSON for `fromJson`:
{"all": bool, "names": [...]}.
*/}}
{{- define "operator-common.watchedNamespaces" -}}
{{- $names := .Values.watch.namespaces | default (list .Release.Namespace) | uniq | sortAlpha -}}
{{- dict "all" .Values.watch.clusterWide "names" (ternary (list) $names .Values.watch.clusterWide) | toJson -}}
{{- end -}}

{{/* operator-common.envPrefix: what the environment variables of the settings begin with. */}}
{{- define "operator-common.envPrefix" -}}
{{- printf "%s_" (include "operator-common.id" . | upper) -}}
{{- end -}}
