{{/*
operator-common.dashboard: the Grafana dashboard as JSON. What it shows is a table
(operator-common.dashboardRows and, where a chart has it, its files/dashboard.yaml); the layout is
made here: rows from top to bottom, panels from left to right on Grafana's grid of 24 columns.
*/}}
{{- define "operator-common.dashboard" -}}
{{- $rows := (include "operator-common.dashboardRows" . | fromYaml).rows -}}
{{- with .Files.Get "files/dashboard.yaml" -}}
{{- $rows = concat $rows (. | fromYaml).rows -}}
{{- end -}}
{{- $selector := printf "job=%q,namespace=~\"$namespace\"" (include "operator-common.fullname" .) -}}
{{- $panels := list -}}
{{- $y := 0 -}}
{{- $id := 1 -}}
{{- range $rows -}}
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
{{- $document := include "operator-common.dashboardFrame" . | fromYaml -}}
{{- $_ := set $document "panels" $panels -}}
{{- $document | toPrettyJson -}}
{{- end -}}

{{/*
operator-common.dashboardPanel: one panel as JSON. Takes panel, id, grid and selector. In the table
SELECTOR stands for the labels of the installation, and `<label>` in a legend for a label's value.
*/}}
{{- define "operator-common.dashboardPanel" -}}
{{- $panel := .panel -}}
{{- $selector := .selector -}}
{{- $source := dict "type" "prometheus" "uid" "${datasource}" -}}
{{- $targets := list -}}
{{- range $index, $query := $panel.queries -}}
{{- $expression := $query.expr | trim | replace "SELECTOR" $selector -}}
{{- $legend := regexReplaceAll "<([a-z_]+)>" ($query.legend | default "") "{{${1}}}" -}}
{{- $letter := index (list "A" "B" "C" "D" "E") $index -}}
{{- $targets = append $targets (dict "refId" $letter "datasource" $source "expr" $expression "legendFormat" $legend "range" true) -}}
{{- end -}}
{{- $defaults := dict "unit" ($panel.unit | default "short") "min" 0 -}}
{{- if eq ($panel.type | default "timeseries") "timeseries" -}}
{{- $_ := set $defaults "custom" (dict "fillOpacity" 10 "lineWidth" 1 "showPoints" "never") -}}
{{- end -}}
{{- with $panel.thresholds -}}
{{- $_ := set $defaults "thresholds" (dict "mode" "absolute" "steps" .) -}}
{{- end -}}
{{- $result := dict "id" .id "title" $panel.title "description" ($panel.description | default "") "type" ($panel.type | default "timeseries") "datasource" $source "gridPos" .grid "targets" $targets -}}
{{- $_ := set $result "fieldConfig" (dict "defaults" $defaults "overrides" list) -}}
{{- if eq $result.type "stat" -}}
{{- $_ := set $result "options" (dict "colorMode" "background" "graphMode" "none" "reduceOptions" (dict "calcs" (list "lastNotNull"))) -}}
{{- else -}}
{{- $_ := set $result "options" (dict "tooltip" (dict "mode" "multi" "sort" "desc") "legend" (dict "displayMode" "list" "placement" "bottom" "showLegend" true)) -}}
{{- end -}}
{{- $result | toJson -}}
{{- end -}}

{{/* operator-common.dashboardFrame: the dashboard without its panels. */}}
{{- define "operator-common.dashboardFrame" -}}
{{- $id := include "operator-common.id" . -}}
title: Slipway / {{ $id }}
# Grafana allows 40 characters, and links stay good for as long as this does not change.
uid: slipway-{{ $id }}
tags: [slipway, operator, {{ $id }}]
schemaVersion: 39
version: 1
editable: true
graphTooltip: 1
refresh: 30s
time: {from: now-3h, to: now}
timezone: browser
links: []
annotations:
  list:
    - name: Leader changes
      enable: true
      hide: false
      iconColor: orange
      datasource: {type: prometheus, uid: "${datasource}"}
      expr: changes(leader_election_master_status{job="{{ include "operator-common.fullname" . }}",namespace=~"$namespace"}[1m]) > 0
      titleFormat: Leader changed
      textFormat: {{ "'{{pod}}'" }}
templating:
  list:
    - name: datasource
      label: Data source
      type: datasource
      query: prometheus
      hide: 0
    - name: namespace
      label: Namespace
      type: query
      datasource: {type: prometheus, uid: "${datasource}"}
      definition: label_values(up{job="{{ include "operator-common.fullname" . }}"}, namespace)
      query:
        query: label_values(up{job="{{ include "operator-common.fullname" . }}"}, namespace)
        refId: namespace
      refresh: 2
      sort: 1
      multi: true
      includeAll: true
      allValue: ".*"
      current: {text: All, value: $__all}
      hide: 0
{{- end -}}
