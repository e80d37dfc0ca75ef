"""Declarations of the metrics of the framework: names, labels, help and buckets.

The names, labels and buckets are the same as in controller-runtime if it has the metric. Names of
other metrics begin with `operator_`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MetricKind(StrEnum):
    """Type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A declaration of a metric."""

    name: str
    """Full name with its unit; the name of a counter ends in `_total`."""
    kind: MetricKind
    help: str
    """The measured quantity, in one sentence."""
    labels: tuple[str, ...] = ()
    """Label names; each must have few values."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of the buckets of a histogram; empty for the defaults of Prometheus."""


_RECONCILE_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
    *(5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)
# From 10 ns to 1,000 s by powers of ten, as in the work queue of client-go.
_QUEUE_BUCKETS: Final = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))

_CONTROLLER: Final = ("controller",)
_QUEUE: Final = ("name", "controller")
_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

RECONCILE_TOTAL: Final = MetricSpec(
    "controller_runtime_reconcile_total",
    _COUNTER,
    "Total number of reconciliations per controller.",
    ("controller", "result"),
)
RECONCILE_ERRORS: Final = MetricSpec(
    "controller_runtime_reconcile_errors_total",
    _COUNTER,
    "Total number of reconciliation errors per controller.",
    _CONTROLLER,
)
TERMINAL_RECONCILE_ERRORS: Final = MetricSpec(
    "controller_runtime_terminal_reconcile_errors_total",
    _COUNTER,
    "Total number of terminal reconciliation errors per controller.",
    _CONTROLLER,
)
RECONCILE_PANICS: Final = MetricSpec(
    "controller_runtime_reconcile_panics_total",
    _COUNTER,
    "Total number of reconciliations per controller that ended with an unexpected exception.",
    _CONTROLLER,
)
RECONCILE_TIMEOUTS: Final = MetricSpec(
    "controller_runtime_reconcile_timeouts_total",
    _COUNTER,
    "Total number of reconciliations per controller that took too long and were cancelled.",
    _CONTROLLER,
)
RECONCILE_TIME: Final = MetricSpec(
    "controller_runtime_reconcile_time_seconds",
    _HISTOGRAM,
    "Length of time per reconciliation per controller.",
    _CONTROLLER,
    _RECONCILE_BUCKETS,
)
MAX_CONCURRENT_RECONCILES: Final = MetricSpec(
    "controller_runtime_max_concurrent_reconciles",
    _GAUGE,
    "Maximum number of concurrent reconciles per controller.",
    _CONTROLLER,
)
ACTIVE_WORKERS: Final = MetricSpec(
    "controller_runtime_active_workers",
    _GAUGE,
    "Number of currently used workers per controller.",
    _CONTROLLER,
)

QUEUE_DEPTH: Final = MetricSpec(
    "workqueue_depth",
    _GAUGE,
    "Current depth of the work queue by priority.",
    ("name", "controller", "priority"),
)
QUEUE_ADDS: Final = MetricSpec(
    "workqueue_adds_total", _COUNTER, "Total number of adds handled by the work queue.", _QUEUE
)
QUEUE_DURATION: Final = MetricSpec(
    "workqueue_queue_duration_seconds",
    _HISTOGRAM,
    "How long a key stays in the work queue before a worker takes it.",
    _QUEUE,
    _QUEUE_BUCKETS,
)
QUEUE_WORK_DURATION: Final = MetricSpec(
    "workqueue_work_duration_seconds",
    _HISTOGRAM,
    "How long processing a key from the work queue takes.",
    _QUEUE,
    _QUEUE_BUCKETS,
)
QUEUE_UNFINISHED_WORK: Final = MetricSpec(
    "workqueue_unfinished_work_seconds",
    _GAUGE,
    "Seconds of work in progress that work_duration has not seen yet; growth means stuck workers.",
    _QUEUE,
)
QUEUE_LONGEST_RUNNING: Final = MetricSpec(
    "workqueue_longest_running_processor_seconds",
    _GAUGE,
    "How many seconds the worker that runs longest has been running.",
    _QUEUE,
)
QUEUE_RETRIES: Final = MetricSpec(
    "workqueue_retries_total", _COUNTER, "Total number of retries handled by the queue.", _QUEUE
)

CLIENT_REQUESTS: Final = MetricSpec(
    "rest_client_requests_total",
    _COUNTER,
    "Number of HTTP requests to the API server by status code, method and host.",
    ("code", "method", "host"),
)
CLIENT_REQUEST_DURATION: Final = MetricSpec(
    "rest_client_request_duration_seconds",
    _HISTOGRAM,
    "Request latency in seconds by verb and host.",
    ("verb", "host"),
    (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)
CLIENT_RETRIES: Final = MetricSpec(
    "rest_client_request_retries_total",
    _COUNTER,
    "Number of requests that were sent again, by status code, verb and host.",
    ("code", "verb", "host"),
)

LEADER_STATUS: Final = MetricSpec(
    "leader_election_master_status",
    _GAUGE,
    "Whether this process leads by the Lease: 0 is a standby, 1 is the leader.",
    ("name",),
)
LEADER_SLOWPATH: Final = MetricSpec(
    "leader_election_slowpath_total",
    _COUNTER,
    "Total number of renewals that had to read the Lease first.",
    ("name",),
)

WATCH_LAST_EVENT_AGE: Final = MetricSpec(
    "operator_watch_last_event_age_seconds",
    _GAUGE,
    "Seconds since the watch of a resource last received anything; 0 if the resource is not"
    " served.",
    ("resource",),
)
CACHE_OBJECTS: Final = MetricSpec(
    "operator_cache_objects", _GAUGE, "Number of objects in the cache of a resource.", ("resource",)
)
CACHE_SWEPT: Final = MetricSpec(
    "operator_cache_swept_total",
    _COUNTER,
    "Total number of changes that the watch missed and a later comparison of the cache found.",
    ("resource",),
)
OBJECTS: Final = MetricSpec(
    "operator_objects",
    _GAUGE,
    "Number of objects that a controller reconciles, by condition, as its cache shows them.",
    ("controller", "type", "status", "reason"),
)
SCOPE_UP: Final = MetricSpec(
    "operator_cache_scope_up",
    _GAUGE,
    "Whether every watched kind of a namespace can be read; if 0, nothing in the namespace is"
    " reconciled.",
    ("watched_namespace",),
)
WORKING: Final = MetricSpec(
    "operator_working",
    _GAUGE,
    "Whether the workers run: 0 on a standby and in a leader that still compares its caches.",
)
MAPPER_ERRORS: Final = MetricSpec(
    "operator_mapper_errors_total",
    _COUNTER,
    "Total number of changes of a resource for which a mapper or projection raised an error.",
    ("resource",),
)
EVENT_LOOP_LAG: Final = MetricSpec(
    "operator_event_loop_lag_seconds",
    _GAUGE,
    "How much later than due the event loop last ran a timer.",
)
EVENTS: Final = MetricSpec(
    "operator_events_total",
    _COUNTER,
    "Total number of Kubernetes Events by result: created, patched, dropped or failed.",
    ("result",),
)
WEBHOOK_CERTIFICATE_EXPIRATION: Final = MetricSpec(
    "operator_webhook_certificate_expiration_timestamp_seconds",
    _GAUGE,
    "Unix time at which the certificate of the webhooks expires; 0 without webhooks.",
)
BUILD_INFO: Final = MetricSpec(
    "operator_build_info",
    _GAUGE,
    "Always 1; the labels name the operator and its version.",
    ("operator", "version"),
)

FRAMEWORK_METRICS: Final = tuple(
    spec for spec in list(globals().values()) if isinstance(spec, MetricSpec)
)
"""All metrics of the framework."""
