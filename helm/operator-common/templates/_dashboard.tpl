{{/*
operator-common.dashboards: the Grafana dashboards by file name, as {file: JSON}. Every chart has one about
the objects of its operator (operator-common.dashboardObjects and its own files/dashboard.yaml), and
one about the runtime of all operators (operator-common.dashboardRuntime), which is the same in
every chart: Grafana's sidecar keeps one file of a name, so it shows it once.
*/}}
{{- define "operator-common.dashboards" -}}
{{- $id := include "operator-common.id" . -}}
{{- $own := (include "operator-common.dashboardObjects" . | fromYaml).rows -}}
{{- with .Files.Get "files/dashboard.yaml" -}}
{{- $own = concat $own (. | fromYaml).rows -}}
{{- end -}}
{{- $frame := dict "title" $id "uid" $id "jobs" (printf "operator_build_info{operator=%q}" $id) -}}
{{- $files := dict (printf "%s.json" $id) (include "operator-common.dashboard" (list $own $frame)) -}}
{{- if .Values.dashboard.runtime -}}
{{- $rows := (include "operator-common.dashboardRuntime" . | fromYaml).rows -}}
{{- $frame := dict "title" "Operators" "uid" "operators" "jobs" "operator_build_info" -}}
{{- $_ := set $files "slipway-operators.json" (include "operator-common.dashboard" (list $rows $frame)) -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{/*
operator-common.dashboard: one dashboard as JSON. Takes the rows and the arguments of
operator-common.dashboardFrame. The layout is computed here: rows from top to bottom, panels from left
to right on Grafana's grid of 24 columns.
*/}}
{{- define "operator-common.dashboard" -}}
{{- $selector := "job=~\"$job\",namespace=~\"$namespace\"" -}}
{{- $panels := list -}}
{{- $y := 0 -}}
{{- $id := 1 -}}
{{- range first . -}}
{{- $grid := dict "h" 1 "w" 24 "x" 0 "y" $y -}}
{{- $panels = append $panels (dict "id" $id "type" "row" "title" .title "collapsed" false "panels" list "gridPos" $grid) -}}
{{- $id = add1 $id -}}
{{- $y = add1 $y -}}
{{- $x := 0 -}}
{{- $height := .height | default 8 -}}
{{- range .panels -}}
{{- $width := .width | default 8 -}}
{{- if gt (add $x $width) 24 -}}
{{- $x = 0 -}}
{{- $y = add $y $height -}}
{{- end -}}
{{- $grid := dict "h" $height "w" $width "x" $x "y" $y -}}
{{- $panel := include "operator-common.dashboardPanel" (dict "panel" . "id" $id "grid" $grid "selector" $selector) -}}
{{- $panels = append $panels ($panel | fromJson) -}}
{{- $x = add $x $width -}}
{{- $id = add1 $id -}}
{{- end -}}
{{- $y = add $y $height -}}
{{- end -}}
{{- $document := include "operator-common.dashboardFrame" (last .) | fromYaml -}}
{{- /* One panel per line, so that a change of a panel is a change of a line. */ -}}
{{- $lines := list -}}
{{- range $panels -}}
{{- $lines = append $lines (. | toRawJson) -}}
{{- end -}}
{{- printf "{\"panels\": [\n%s\n],\n%s\n" (join ",\n" $lines) ($document | toRawJson | trimPrefix "{") -}}
{{- end -}}

{{/*
operator-common.dashboardPanel: one panel as JSON. Takes panel, id, grid and selector. In the table
SELECTOR stands for the labels of the installation, and `<label>` in a legend for a label's value. A panel shows
a number only while the operator reports one: a zero for an operator that is down would look healthy. For the same reason a
stat asks for the present value, not for the last one of the time range.
*/}}
{{- define "operator-common.dashboardPanel" -}}
{{- $panel := .panel -}}
{{- $selector := .selector -}}
{{- $source := dict "type" "prometheus" "uid" "${datasource}" -}}
{{- $targets := list -}}
{{- $stat := eq ($panel.type | default "timeseries") "stat" -}}
{{- range $index, $query := $panel.queries -}}
{{- $expression := $query.expr | trim | replace "SELECTOR" $selector -}}
{{- /* Without observations a histogram has a quantile that is not a number. */ -}}
{{- if hasPrefix "histogram_quantile" $expression -}}
{{- $expression = printf "%s >= 0" $expression -}}
{{- end -}}
{{- $legend := regexReplaceAll "<([a-z_]+)>" ($query.legend | default "") "{{${1}}}" -}}
{{- $letter := index (list "A" "B" "C" "D" "E") $index -}}
{{- $targets = append $targets (dict "refId" $letter "datasource" $source "expr" $expression "legendFormat" $legend "range" (not $stat) "instant" $stat) -}}
{{- end -}}
{{- $defaults := dict "unit" ($panel.unit | default "short") "min" 0 -}}
{{- if not $stat -}}
{{- $_ := set $defaults "custom" (dict "fillOpacity" 10 "lineWidth" 1 "showPoints" "never") -}}
{{- end -}}
{{- with $panel.thresholds -}}
{{- $_ := set $defaults "thresholds" (dict "mode" "absolute" "steps" .) -}}
{{- end -}}
{{- $result := dict "id" .id "title" $panel.title "description" ($panel.description | default "") "type" ($panel.type | default "timeseries") "datasource" $source "gridPos" .grid "targets" $targets -}}
{{- $_ := set $result "fieldConfig" (dict "defaults" $defaults "overrides" list) -}}
{{- if $stat -}}
{{- $_ := set $result "options" (dict "colorMode" "background" "graphMode" "none" "reduceOptions" (dict "calcs" (list "lastNotNull"))) -}}
{{- else -}}
{{- $_ := set $result "options" (dict "tooltip" (dict "mode" "multi" "sort" "desc") "legend" (dict "displayMode" "list" "placement" "bottom" "showLegend" true)) -}}
{{- end -}}
{{- $result | toJson -}}
{{- end -}}

{{/*
operator-common.dashboardFrame: the dashboard without its panels. Takes title, uid and jobs (the metric whose
jobs can be selected).
*/}}
{{- define "operator-common.dashboardFrame" -}}
title: Slipway / {{ .title }}
# Grafana allows 40 characters, and links stay valid while this does not change.
uid: {{ printf "slipway-%s" .uid | trunc 40 }}
tags: [slipway, operator]
schemaVersion: 39
version: 1
editable: true
graphTooltip: 1
refresh: 30s
time: {from: now-3h, to: now}
timezone: browser
links:
  - title: Slipway
    type: dashboards
    tags: [slipway]
    icon: external link
    tooltip: Dashboards of Slipway
    asDropdown: true
    includeVars: true
    keepTime: true
    targetBlank: false
annotations:
  list:
    - name: Leader changes
      enable: true
      hide: false
      iconColor: orange
      datasource: {type: prometheus, uid: "${datasource}"}
      expr: changes(leader_election_master_status{job=~"$job",namespace=~"$namespace"}[1m]) > 0
      titleFormat: Leader changed
      textFormat: {{ "'{{job}} {{pod}}'" }}
templating:
  list:
    - name: datasource
      label: Data source
      type: datasource
      query: prometheus
      hide: 0
    - {{- include "operator-common.dashboardVariable" (dict "name" "job" "label" "Operator" "query" (printf "label_values(%s, job)" .jobs)) | nindent 6 }}
    - {{- include "operator-common.dashboardVariable" (dict "name" "namespace" "label" "Namespace" "query" "label_values(operator_build_info{job=~\"$job\"}, namespace)") | nindent 6 }}
{{- end -}}

{{/*
operator-common.dashboardVariable: a variable of a dashboard. Takes name, label and query. It has no
allValue: `.*` would also select jobs that are no operators.
*/}}
{{- define "operator-common.dashboardVariable" -}}
name: {{ .name }}
label: {{ .label }}
type: query
datasource: {type: prometheus, uid: "${datasource}"}
definition: {{ .query }}
query:
  query: {{ .query }}
  refId: {{ .name }}
refresh: 2
sort: 1
multi: true
includeAll: true
current: {text: All, value: $__all}
hide: 0
{{- end -}}
