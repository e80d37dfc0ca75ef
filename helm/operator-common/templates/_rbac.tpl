{{/*
The service account and its permissions. The rules are generated (files/rbac.yaml); the value
`watch` determines the namespaces in which they are granted.
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
    {{- with .Values.serviceAccount.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# The pod of the operator requests the token; other pods with this account get none.
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/*
operator-common.rbac: the roles and bindings in namespaces, as one YAML stream. They have a file of their own
in each chart (templates/rbac.yaml), so that an administrator can render them alone.
*/}}
{{- define "operator-common.rbac" -}}
{{- if .Values.rbac.create -}}
{{- $parts := list "namespaceRoles" -}}
{{- if include "operator-common.hasWebhooks" . -}}
{{- $parts = append $parts "webhookRole" -}}
{{- end -}}
{{- if include "operator-common.signs" . -}}
{{- $parts = append $parts "signingRole" -}}
{{- end -}}
{{- $root := . -}}
{{- range $parts }}
---
{{ include "operator-common.decorate" (list $root (include (printf "operator-common.%s" .) $root)) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* operator-common.namespaceRoles: the permissions in the namespace of the release and in watched namespaces. */}}
{{- define "operator-common.namespaceRoles" -}}
{{- $root := . -}}
{{- $rules := .Files.Get "files/rbac.yaml" | fromYaml -}}
{{- $name := include "operator-common.fullname" . -}}
{{- include "operator-common.role" (dict "root" $root "name" (printf "%s-leader" $name) "namespace" .Release.Namespace "rules" $rules.operatorNamespaceRules) }}
{{- $guarded := (include "operator-common.guardedNamespaces" . | fromJson).names -}}
{{- range (include "operator-common.watchedNamespaces" . | fromJson).names }}
---
{{ if has . $guarded -}}
{{ include "operator-common.roleBinding" (dict "root" $root "name" (include "operator-common.guardedBinding" $root) "namespace" . "kind" "ClusterRole" "role" (include "operator-common.guardedRoleName" $root)) }}
{{- else if $root.Values.rbac.existingClusterRole -}}
{{ include "operator-common.roleBinding" (dict "root" $root "name" $name "namespace" . "kind" "ClusterRole" "role" $root.Values.rbac.existingClusterRole) }}
{{- else -}}
{{ include "operator-common.role" (dict "root" $root "name" $name "namespace" . "rules" $rules.rules) }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
operator-common.clusterRbac: the cluster-wide roles and bindings, as one YAML stream. They have a file of
their own in each chart (templates/cluster-rbac.yaml), so that an administrator can render them alone.
*/}}
{{- define "operator-common.clusterRbac" -}}
{{- if .Values.rbac.clusterRoles -}}
{{- include "operator-common.decorate" (list . (include "operator-common.clusterRbacStream" .)) -}}
{{- end -}}
{{- end -}}

{{/* operator-common.clusterRbacStream: operator-common.clusterRbac without common labels and annotations. */}}
{{- define "operator-common.clusterRbacStream" -}}
{{- $root := . -}}
{{- if .Values.rbac.create -}}
{{- $rules := .Files.Get "files/rbac.yaml" | fromYaml -}}
{{- $watched := include "operator-common.watchedNamespaces" . | fromJson -}}
{{- if (include "operator-common.guardedNamespaces" . | fromJson).names }}
---
{{ include "operator-common.guardedRole" (dict "root" $root "rules" $rules.rules) }}
{{- end }}
{{- $clusterRules := $rules.clusterRules | default list -}}
{{- if $watched.all -}}
{{- $clusterRules = concat $rules.rules $clusterRules -}}
{{- end -}}
{{- if $watched.selector -}}
{{- $namespaces := dict "apiGroups" (list "") "resources" (list "namespaces") "verbs" (list "get" "list" "watch") -}}
{{- $clusterRules = append $clusterRules $namespaces -}}
{{- end -}}
{{- if (.Values.settings | default dict).metricsSecure -}}
{{- $tokens := dict "apiGroups" (list "authentication.k8s.io") "resources" (list "tokenreviews") "verbs" (list "create") -}}
{{- $access := dict "apiGroups" (list "authorization.k8s.io") "resources" (list "subjectaccessreviews") "verbs" (list "create") -}}
{{- $clusterRules = concat $clusterRules (list $tokens $access) -}}
{{- end -}}
{{- if $clusterRules }}
---
{{ include "operator-common.role" (dict "root" $root "name" (include "operator-common.clusterName" .) "namespace" "" "rules" $clusterRules) }}
{{- end -}}
{{- if include "operator-common.hasWebhooks" . }}
---
{{ include "operator-common.role" (dict "root" $root "name" (printf "%s-webhook" (include "operator-common.clusterName" .)) "namespace" "" "rules" (include "operator-common.webhookClusterRules" . | fromYamlArray)) }}
{{- end }}
{{- end -}}
{{- include "operator-common.userRoles" . -}}
{{- include "operator-common.teamRoles" . -}}
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
{{ include "operator-common.roleBinding" (merge (dict "kind" (printf "%sRole" $prefix) "role" .name) .) }}
{{- end -}}

{{/*
operator-common.roleBinding: binds a role to the operator's service account. Takes root, name, namespace
(empty: cluster-wide), and kind and name of the role (kind, role).
*/}}
{{- define "operator-common.roleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "" "Cluster" (not (empty .namespace)) }}RoleBinding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "operator-common.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ include "operator-common.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/*
operator-common.guardedNamespaces: the watched namespaces in which operator-common.guardedRole grants
the permissions, as JSON for `fromJson`: {"names": [...]}.
*/}}
{{- define "operator-common.guardedNamespaces" -}}
{{- $names := list -}}
{{- if and .Values.rbac.create (not .Values.rbac.existingClusterRole) (include "operator-common.guardedBinding" .) -}}
{{- $names = without (include "operator-common.watchedNamespaces" . | fromJson).names .Release.Namespace -}}
{{- end -}}
{{- dict "names" $names | toJson -}}
{{- end -}}

{{/*
operator-common.guardedRole: the permissions in watched namespaces other than the namespace of the
release. A Role would be deleted with its namespace while the operator still needs it. Therefore this
is a ClusterRole, bound in each namespace by a RoleBinding to which the operator may add a finalizer.
The right to patch the binding is safe, because RBAC prevents anyone from granting permissions that
they do not have.
Takes root and rules.
*/}}
{{- define "operator-common.guardedRole" -}}
{{- $own := dict "apiGroups" (list "rbac.authorization.k8s.io") "resources" (list "rolebindings") "resourceNames" (list (include "operator-common.guardedBinding" .root)) "verbs" (list "get" "patch") -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "operator-common.guardedRoleName" .root }}
  labels:
    {{- include "operator-common.labels" .root | nindent 4 }}
rules:
  {{- append .rules $own | toYaml | nindent 2 }}
{{- end -}}

{{/* operator-common.guardedRoleName: name of operator-common.guardedRole. */}}
{{- define "operator-common.guardedRoleName" -}}
{{- $name := printf "%s-watched" (include "operator-common.clusterName" .) -}}
{{- if gt (len $name) 63 -}}
{{- $name = printf "%s-%s-watched" ($name | trunc 46) ($name | sha256sum | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/*
operator-common.userRoles: for each kind a viewer and an editor role that join the built-in roles
view, edit and admin, so that anyone who may edit Deployments may edit these kinds as well. The editor
role of a cluster-scoped kind joins no other role: administrators bind it themselves. The roles belong
to the cluster like the CRDs, so only one release per cluster should create them.
*/}}
{{- define "operator-common.userRoles" -}}
{{- if .Values.rbac.userRoles -}}
{{- $root := . -}}
{{- range (.Files.Get "files/rbac.yaml" | fromYaml).kinds }}
{{- $name := printf "%s-%s" (include "operator-common.id" $root) .plural }}
---
{{ include "operator-common.userRole" (dict "root" $root "name" (printf "%s-viewer" $name) "joins" (list "view") "rules" .viewer) }}
---
{{ include "operator-common.userRole" (dict "root" $root "name" (printf "%s-editor" $name) "joins" (eq .scope "Cluster" | ternary (list) (list "admin" "edit")) "rules" .editor) }}
{{- if and $root.Values.rbac.catalogGroups (has .kind (list "InstanceSize" "IPPool" "ProviderNetwork")) }}
---
{{ include "operator-common.catalogBinding" (dict "root" $root "name" (printf "%s-viewer" $name)) }}
{{- end }}
{{- end }}
{{- if eq (include "operator-common.id" .) "compute" }}
---
{{ include "operator-common.consoleRole" . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/*
operator-common.catalogBinding: lets groups read a kind of the cluster that tenants name in their
objects. The built-in role view reaches such kinds only through a ClusterRoleBinding. Kinds that show
what other tenants have, such as IPAllocation, get no binding. Takes root and name.
*/}}
{{- define "operator-common.catalogBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "operator-common.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
  {{- range .root.Values.rbac.catalogGroups }}
  - apiGroup: rbac.authorization.k8s.io
    kind: Group
    name: {{ . | quote }}
  {{- end }}
{{- end -}}

{{/*
operator-common.consoleRole: consoles of machines for editors of compute. The role kubevirt.io:edit would allow them
to create machines past Instances.
*/}}
{{- define "operator-common.consoleRole" -}}
{{- $screens := list "virtualmachineinstances/console" "virtualmachineinstances/vnc" "virtualmachineinstances/vnc/screenshot" -}}
{{- $switches := list "virtualmachineinstances/pause" "virtualmachineinstances/unpause" -}}
{{- $rules := list (dict "apiGroups" (list "subresources.kubevirt.io") "resources" $screens "verbs" (list "get")) -}}
{{- $rules = append $rules (dict "apiGroups" (list "subresources.kubevirt.io") "resources" $switches "verbs" (list "update")) -}}
{{- $rules = append $rules (dict "apiGroups" (list "kubevirt.io") "resources" (list "virtualmachines" "virtualmachineinstances") "verbs" (list "get" "list" "watch")) -}}
{{ include "operator-common.userRole" (dict "root" . "name" "compute-console" "joins" (list "admin" "edit") "rules" $rules) }}
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

{{/*
operator-common.teamRoles: two roles for teams that install a release of their own. The first has the permissions
of the operator in a namespace; rbac.existingClusterRole names it. The second lets its holder bind the first. An
administrator binds the second role in the namespace of a team: RBAC allows nobody to grant permissions that they
lack, and the built-in role admin lacks some. The roles belong to the cluster like the CRDs.
*/}}
{{- define "operator-common.teamRoles" -}}
{{- if .Values.rbac.teamRoles -}}
{{- $name := printf "%s-operator" (include "operator-common.id" .) }}
---
{{ include "operator-common.userRole" (dict "root" . "name" $name "joins" (list) "rules" (.Files.Get "files/rbac.yaml" | fromYaml).rules) }}
---
{{ include "operator-common.userRole" (dict "root" . "name" (printf "%s-binder" $name) "joins" (list) "rules" (list (dict "apiGroups" (list "rbac.authorization.k8s.io") "resources" (list "clusterroles") "resourceNames" (list $name) "verbs" (list "bind")))) }}
{{- end -}}
{{- end -}}
