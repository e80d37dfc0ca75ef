{{/*
operator-common.validate: rejects combinations of values that the schema cannot detect. Each message
names the mistake and the remedy.
*/}}
{{- define "operator-common.validate" -}}
{{- include "operator-common.validateSettings" . -}}
{{- if has "*" (.Values.watch.namespaces | default list) -}}
{{- fail "watch.namespaces: * is not a namespace: leave it empty and set watch.clusterWide to true" -}}
{{- end -}}
{{- if and .Values.watch.clusterWide .Values.watch.namespaces -}}
{{- fail "watch.clusterWide and watch.namespaces exclude each other: set clusterWide to false, or leave namespaces empty" -}}
{{- end -}}
{{- if and (include "operator-common.namespaceSelector" .) (or .Values.watch.clusterWide .Values.watch.namespaces) -}}
{{- fail "watch.namespaceSelector excludes watch.clusterWide and watch.namespaces: set only one of them" -}}
{{- end -}}
{{- if and .Values.watch.excludedNamespaces (not .Values.watch.clusterWide) -}}
{{- fail "watch.excludedNamespaces has an effect only with watch.clusterWide: set clusterWide to true, or leave it empty; with namespaceSelector, add a matchExpression {key: kubernetes.io/metadata.name, operator: NotIn, values: [...]}" -}}
{{- end -}}
{{- if and (eq (include "operator-common.setting" (list . "leaderElect")) "false") (gt (int .Values.replicas) 1) -}}
{{- fail "settings.leaderElect is false with replicas above 1: without leader election, replicas undo each other's changes; set replicas to 1, or leave leaderElect on" -}}
{{- end -}}
{{- if and (eq (include "operator-common.setting" (list . "leaderElect")) "false") .Values.strategy (ne (dig "type" "" .Values.strategy) "Recreate") -}}
{{- fail "strategy: settings.leaderElect is false, so two pods must never run together: set strategy.type to Recreate, or leave strategy empty" -}}
{{- end -}}
{{- if and (kindIs "invalid" .Values.podDisruptionBudget.minAvailable) (kindIs "invalid" .Values.podDisruptionBudget.maxUnavailable) -}}
{{- fail "podDisruptionBudget: minAvailable and maxUnavailable are both null: set one of them, or set enabled to false" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled and podMonitor.enabled exclude each other: every replica would be scraped twice" -}}
{{- end -}}
{{- if and (eq (include "operator-common.setting" (list . "metricsSecure")) "true") .Values.podMonitor.enabled (not .Values.podMonitor.authorization) -}}
{{- fail "podMonitor.authorization is empty with settings.metricsSecure: name the Secret with the token of Prometheus, or use the ServiceMonitor" -}}
{{- end -}}
{{- if and .Values.hostNetwork .Values.networkPolicy.enabled -}}
{{- fail "hostNetwork and networkPolicy.enabled exclude each other: a NetworkPolicy has no effect on pods in the network of their node" -}}
{{- end -}}
{{- include "operator-common.validateLists" . -}}
{{- include "operator-common.validateImage" . -}}
{{- include "operator-common.validateTimes" . -}}
{{- include "operator-common.validateLabels" . -}}
{{- include "operator-common.validateCertificate" . -}}
{{- end -}}

{{/*
operator-common.validateLists: rejects entries of lists that the API server accepts only once. The user and the
chart both fill these lists. For environment variables the entry of the user takes precedence (operator-common.env).
*/}}
{{- define "operator-common.validateLists" -}}
{{- $containers := concat .Values.initContainers .Values.extraContainers -}}
{{- $lists := list (list "extraEnv" "name" .Values.extraEnv) (list "extraVolumes" "name" .Values.extraVolumes) (list "extraVolumeMounts" "mountPath" .Values.extraVolumeMounts) (list "initContainers and extraContainers" "name" $containers) -}}
{{- $own := dict "extraVolumes" "tmp" "extraVolumeMounts" "/tmp" "initContainers and extraContainers" "operator" -}}
{{- range $lists -}}
{{- $list := index . 0 -}}
{{- $field := index . 1 -}}
{{- $seen := list -}}
{{- range index . 2 -}}
{{- $value := get . $field -}}
{{- if eq (toString $value) (get $own $list) -}}
{{- fail (printf "%s: the chart already has the %s %s: use another %s" $list $field $value $field) -}}
{{- end -}}
{{- if has $value $seen -}}
{{- fail (printf "%s: two entries have the %s %v: remove one of them" $list $field $value) -}}
{{- end -}}
{{- $seen = append $seen $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.validateImage: rejects the default repository without a registry. Container runtimes
would look for it on Docker Hub, where the project does not own the name.
*/}}
{{- define "operator-common.validateImage" -}}
{{- $default := printf "slipway/%s" (include "operator-common.id" .) -}}
{{- $named := or (include "operator-common.registry" .) .Values.image.digest (ne .Values.image.repository $default) -}}
{{- if not (or $named (eq .Values.image.pullPolicy "Never")) -}}
{{- fail (printf "image.registry: %s would be pulled from Docker Hub, where the project does not own this name: set image.registry or global.imageRegistry to the registry that has the image, or image.digest; set image.pullPolicy to Never if the nodes have it" $default) -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.validateSettings: rejects settings that only other operators have. The schema, which
all charts share, knows the settings of all operators.
*/}}
{{- define "operator-common.validateSettings" -}}
{{- $known := list -}}
{{- range (.Files.Get "files/settings.yaml" | fromYaml).settings -}}
{{- $known = append $known .name -}}
{{- end -}}
{{- range $name, $_ := .Values.settings -}}
{{- if not (has $name $known) -}}
{{- fail (printf "settings.%s: this operator has no such setting; its settings are %s" $name (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
operator-common.validateTimes: rejects times with which the operator would not start, or would be
killed during its shutdown.
*/}}
{{- define "operator-common.validateTimes" -}}
{{- $drain := include "operator-common.setting" (list . "drainTimeoutSeconds") | float64 -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) $drain -}}
{{- fail (printf "terminationGracePeriodSeconds (%v) must be greater than settings.drainTimeoutSeconds (%v): running reconciles would be killed" .Values.terminationGracePeriodSeconds $drain) -}}
{{- end -}}
{{- $lease := include "operator-common.setting" (list . "leaseDurationSeconds") | float64 -}}
{{- $renew := include "operator-common.setting" (list . "renewDeadlineSeconds") | float64 -}}
{{- $retry := include "operator-common.setting" (list . "retryPeriodSeconds") | float64 -}}
{{- if le $lease $renew -}}
{{- fail (printf "settings.leaseDurationSeconds (%v) must be greater than settings.renewDeadlineSeconds (%v): a standby would take over while the leader still works" $lease $renew) -}}
{{- end -}}
{{- if le $renew (mulf $retry 1.2) -}}
{{- fail (printf "settings.renewDeadlineSeconds (%v) must be greater than 1.2 times settings.retryPeriodSeconds (%v): the leader could try to renew only once" $renew $retry) -}}
{{- end -}}
{{- end -}}

{{/* operator-common.validateLabels: rejects labels that the chart sets, some of which are used in selectors. */}}
{{- define "operator-common.validateLabels" -}}
{{- $own := include "operator-common.labels" . | fromYaml -}}
{{- $places := dict "podLabels" .Values.podLabels "service.labels" .Values.service.labels "serviceAccount.labels" .Values.serviceAccount.labels "commonLabels" .Values.commonLabels "global.commonLabels" .Values.global.commonLabels "serviceMonitor.labels" .Values.serviceMonitor.labels "podMonitor.labels" .Values.podMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels "dashboard.labels" .Values.dashboard.labels -}}
{{- range $place, $labels := $places -}}
{{- range $label, $_ := $labels -}}
{{- if hasKey $own $label -}}
{{- fail (printf "%s: %s is a label of the chart's own and cannot be set: remove it" $place $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
