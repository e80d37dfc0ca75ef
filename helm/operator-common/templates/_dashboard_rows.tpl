{{/*
The rows of dashboards, as {rows: [...]}. A panel has a title, queries (expr, legend) and, if they differ
from the default, type (timeseries), unit (short), width (8 of 24) and thresholds. All panels of a row
have its height (8). Where a counter or a group exists only after the first event, `or 0 * max(operator_build_info{...})`
says that an operator that reports has none. The label that differs stands first in a legend, because long ones are cut.
*/}}

{{/* operator-common.dashboardObjects: the first rows of the dashboard about the objects of an operator. */}}
{{- define "operator-common.dashboardObjects" -}}
rows:
  - title: At a glance
    height: 4
    panels:
      - title: Replicas up
        description: Share of the replicas that respond to scrapes.
        type: stat
        unit: percentunit
        thresholds: [{color: red, value: null}, {color: orange, value: 0.01}, {color: green, value: 1}]
        queries:
          - expr: avg(up{SELECTOR})
      - title: Objects
        description: According to the caches.
        type: stat
        queries:
          - expr: sum(max by (job, namespace, controller, status, reason) (operator_objects{SELECTOR, type="Ready"})) or 0 * max(operator_build_info{SELECTOR})
      - title: Objects that are not ready
        type: stat
        thresholds: [{color: green, value: null}, {color: orange, value: 1}]
        queries:
          - expr: sum(max by (job, namespace, controller, status, reason) (operator_objects{SELECTOR, type="Ready", status!="True"})) or 0 * max(operator_build_info{SELECTOR})

  - title: Objects
    panels:
      - title: Objects by Ready condition
        description: NoStatus means that no reconcile has written a status yet.
        queries:
          - expr: sum by (controller, status) (max by (job, namespace, controller, status, reason) (operator_objects{SELECTOR, type="Ready"}))
            legend: <status> <controller>
      - title: Objects that are not ready, by reason
        queries:
          - expr: sum by (controller, reason) (max by (job, namespace, controller, status, reason) (operator_objects{SELECTOR, type="Ready", status!="True"})) > 0
            legend: <reason> <controller>
      - title: Reconciles by result
        unit: ops
        queries:
          - expr: sum by (controller, result) (rate(controller_runtime_reconcile_total{SELECTOR}[$__rate_interval]))
            legend: <result> <controller>
{{- end -}}

{{/* operator-common.dashboardRuntime: the dashboard about the runtime of all operators. */}}
{{- define "operator-common.dashboardRuntime" -}}
rows:
  - title: At a glance
    height: 4
    panels:
      - title: Replicas up
        description: Share of the replicas that respond to scrapes.
        type: stat
        width: 4
        unit: percentunit
        thresholds: [{color: red, value: null}, {color: orange, value: 0.01}, {color: green, value: 1}]
        queries:
          - expr: avg(up{SELECTOR})
      - title: Leaders
        description: Of the installation that has the fewest. Each must have one; 0 means that it reconciles nothing.
        type: stat
        width: 4
        thresholds: [{color: red, value: null}, {color: green, value: 1}, {color: red, value: 2}]
        queries:
          - expr: min(sum by (job, namespace) (leader_election_master_status{SELECTOR}))
      - title: Reconciles
        type: stat
        unit: ops
        width: 4
        queries:
          - expr: sum(rate(controller_runtime_reconcile_total{SELECTOR}[$__rate_interval]))
      - title: Failing reconciles
        type: stat
        unit: percentunit
        width: 4
        thresholds: [{color: green, value: null}, {color: orange, value: 0.01}, {color: red, value: 0.1}]
        queries:
          - expr: |-
              sum(rate(controller_runtime_reconcile_errors_total{SELECTOR}[$__rate_interval]))
                / (sum(rate(controller_runtime_reconcile_total{SELECTOR}[$__rate_interval])) > 0)
                or 0 * max(operator_build_info{SELECTOR})
      - title: Waiting in queues
        type: stat
        width: 4
        thresholds: [{color: green, value: null}, {color: orange, value: 100}, {color: red, value: 1000}]
        queries:
          - expr: sum(workqueue_depth{SELECTOR})
      - title: Oldest watch
        description: Longest time since a watch last received an event or a bookmark. Bookmarks arrive about every minute.
        type: stat
        unit: s
        width: 4
        thresholds: [{color: green, value: null}, {color: orange, value: 300}, {color: red, value: 900}]
        queries:
          - expr: max(operator_watch_last_event_age_seconds{SELECTOR})

  - title: Operators
    panels:
      - title: Replicas up by installation
        queries:
          - expr: sum by (job, namespace) (up{SELECTOR})
            legend: <job> in <namespace>
      - title: Objects that are not ready
        description: According to the caches.
        queries:
          - expr: sum by (namespace, controller) (max by (job, namespace, controller, status, reason) (operator_objects{SELECTOR, type="Ready", status!="True"}))
            legend: <controller> in <namespace>
      - title: Namespaces that cannot be read
        thresholds: [{color: green, value: null}, {color: red, value: 1}]
        queries:
          - expr: sum by (job) (1 - min by (job, namespace, watched_namespace) (operator_cache_scope_up{SELECTOR}))
            legend: <job>

  - title: Reconciles
    panels:
      - title: Rate by result
        unit: ops
        queries:
          - expr: sum by (controller, result) (rate(controller_runtime_reconcile_total{SELECTOR}[$__rate_interval]))
            legend: <result> <controller>
      - title: Errors
        description: Terminal errors wait for a change of the object; panics are bugs; timeouts are cancelled and retried.
        unit: ops
        queries:
          - expr: sum by (controller) (rate(controller_runtime_reconcile_errors_total{SELECTOR}[$__rate_interval]))
            legend: error <controller>
          - expr: sum by (controller) (rate(controller_runtime_terminal_reconcile_errors_total{SELECTOR}[$__rate_interval]))
            legend: terminal <controller>
          - expr: sum by (controller) (rate(controller_runtime_reconcile_panics_total{SELECTOR}[$__rate_interval]))
            legend: panic <controller>
          - expr: sum by (controller) (rate(controller_runtime_reconcile_timeouts_total{SELECTOR}[$__rate_interval]))
            legend: timeout <controller>
      - title: Duration
        unit: s
        queries:
          - expr: histogram_quantile(0.5, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{SELECTOR}[$__rate_interval])))
            legend: p50 <controller>
          - expr: histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{SELECTOR}[$__rate_interval])))
            legend: p99 <controller>

  - title: Queue
    panels:
      - title: Depth
        queries:
          - expr: sum by (name, priority) (workqueue_depth{SELECTOR})
            legend: priority <priority> <name>
      - title: Time in the queue
        unit: s
        queries:
          - expr: histogram_quantile(0.5, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket{SELECTOR}[$__rate_interval])))
            legend: p50 <name>
          - expr: histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket{SELECTOR}[$__rate_interval])))
            legend: p99 <name>
      - title: Workers
        queries:
          - expr: sum by (controller) (controller_runtime_active_workers{SELECTOR})
            legend: active <controller>
          - expr: max by (controller) (controller_runtime_max_concurrent_reconciles{SELECTOR})
            legend: limit <controller>
      - title: Adds and retries
        unit: ops
        queries:
          - expr: sum by (name) (rate(workqueue_adds_total{SELECTOR}[$__rate_interval]))
            legend: adds <name>
          - expr: sum by (name) (rate(workqueue_retries_total{SELECTOR}[$__rate_interval]))
            legend: retries <name>
      - title: Longest running
        description: Unlimited growth indicates a stuck worker.
        unit: s
        queries:
          - expr: max by (name) (workqueue_longest_running_processor_seconds{SELECTOR})
            legend: <name>

  - title: Cache and watches
    panels:
      - title: Objects in the cache
        queries:
          - expr: max by (resource) (operator_cache_objects{SELECTOR})
            legend: <resource>
      - title: Time since the last watch event
        unit: s
        queries:
          - expr: max by (resource) (operator_watch_last_event_age_seconds{SELECTOR})
            legend: <resource>
      - title: Missed changes found by the sweep
        unit: ops
        queries:
          - expr: sum by (resource) (rate(operator_cache_swept_total{SELECTOR}[$__rate_interval]))
            legend: <resource>

  - title: API requests
    panels:
      - title: Requests by status code
        unit: reqps
        queries:
          - expr: sum by (code, method) (rate(rest_client_requests_total{SELECTOR}[$__rate_interval]))
            legend: <code> <method>
      - title: API request latency
        unit: s
        queries:
          - expr: histogram_quantile(0.5, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket{SELECTOR}[$__rate_interval])))
            legend: <verb> p50
          - expr: histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket{SELECTOR}[$__rate_interval])))
            legend: <verb> p99
      - title: Retries and Events
        unit: ops
        queries:
          - expr: sum by (code) (rate(rest_client_request_retries_total{SELECTOR}[$__rate_interval]))
            legend: retry after <code>
          - expr: sum by (result) (rate(operator_events_total{SELECTOR}[$__rate_interval]))
            legend: Event <result>

  - title: Process
    panels:
      - title: Leader
        queries:
          - expr: leader_election_master_status{SELECTOR}
            legend: <pod>
      - title: Memory
        unit: bytes
        queries:
          - expr: process_resident_memory_bytes{SELECTOR}
            legend: <pod>
      - title: CPU
        unit: "suffix: cores"
        width: 4
        queries:
          - expr: rate(process_cpu_seconds_total{SELECTOR}[$__rate_interval])
            legend: <pod>
      - title: Event loop lag
        width: 4
        unit: s
        queries:
          - expr: operator_event_loop_lag_seconds{SELECTOR}
            legend: <pod>
{{- end -}}
