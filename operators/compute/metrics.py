"""Metrics of the compute operator, in addition to the common metrics."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

ACTIONS: Final = MetricSpec(
    "compute_actions_total",
    MetricKind.COUNTER,
    "Total number of changes made to machines, runs, disks and claims, by reason.",
    ("reason",),
)

OPERATIONS: Final = MetricSpec(
    "compute_operations_total",
    MetricKind.COUNTER,
    "Total number of Operations that ended, by type and outcome.",
    ("type", "outcome"),
)
OPERATION_SECONDS: Final = MetricSpec(
    "compute_operation_duration_seconds",
    MetricKind.HISTOGRAM,
    "Time from when an Operation locked its Instance until the Operation ended.",
    ("type", "outcome"),
    (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0),
)

METRICS: Final[tuple[MetricSpec, ...]] = (ACTIONS, OPERATIONS, OPERATION_SECONDS)
"""Metrics that the process registers and the reference documentation lists."""
