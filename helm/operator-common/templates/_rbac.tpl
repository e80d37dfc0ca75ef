{{/*
The service account and its permissions. What the operator may do is generated (files/rbac.yaml);
where it may do it follows from `watch`: only in the watched namespaces.
*/}}

{{/* operator-common.serviceAccount: the identity of the operator. */}}
{{- define "operator-common.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "operator-common.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# The pod asks for the token itself; nothing else that runs as this account gets one.
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/* operator-common.rbac: every role and binding, as one YAML stream. */}}
{{- define "operator-common.rbac" -}}
{{- if .Values.rbac.create -}}
{{- $root := . -}}
{{- $rules := .Files.Get "files/rbac.yaml" | fromYaml -}}
{{- $watched := include "operator-common.watchedNamespaces" . | fromJson -}}
{{- $name := include "operator-common.fullname" . -}}
{{- include "operator-common.role" (dict "root" $root "name" (printf "%s-leader" $name) "namespace" .Release.Namespace "rules" $rules.operatorNamespaceRules) }}
{{- range $watched.names }}
---
{{ include "operator-common.role" (dict "root" $root "name" $name "namespace" . "rules" $rules.rules) }}
{{- end }}
{{- $clusterRules := $rules.clusterRules | default list -}}
{{- if $watched.all -}}
{{- $clusterRules = concat $rules.rules $clusterRules -}}
{{- end -}}
{{- if $clusterRules }}
---
{{ include "operator-common.role" (dict "root" $root "name" (include "operator-common.clusterName" .) "namespace" "" "rules" $clusterRules) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.role: a role and its binding to the operator's service account.
Takes root, name, namespace (empty: cluster-wide) and rules.
*/}}
{{- define "operator-common.role" -}}
{{- $prefix := ternary "" "Cluster" (not (empty .namespace)) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}Role
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "operator-common.labels" .root | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}RoleBinding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "operator-common.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $prefix }}Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "operator-common.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/*
operator-common.userRoles: for each kind a viewer and an editor role that join the built-in roles
view, edit and admin, so that who may edit Deployments may edit these kinds too. They belong to the
cluster like the CRDs, so one release in a cluster is to install them.
*/}}
{{- define "operator-common.userRoles" -}}
{{- if .Values.rbac.userRoles -}}
{{- $root := . -}}
{{- range (.Files.Get "files/rbac.yaml" | fromYaml).kinds }}
{{- $name := printf "%s-%s" (include "operator-common.id" $root) .plural }}
---
{{ include "operator-common.userRole" (dict "root" $root "name" (printf "%s-viewer" $name) "joins" (list "view") "rules" .viewer) }}
---
{{ include "operator-common.userRole" (dict "root" $root "name" (printf "%s-editor" $name) "joins" (list "admin" "edit") "rules" .editor) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/*
operator-common.userRole: one role for people. Takes root, name, joins (built-in roles) and rules.
*/}}
{{- define "operator-common.userRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels:
    {{- include "operator-common.labels" .root | nindent 4 }}
    {{- range .joins }}
    rbac.authorization.k8s.io/aggregate-to-{{ . }}: "true"
    {{- end }}
rules:
  {{- toYaml .rules | nindent 2 }}
{{- end -}}
