"""Metrics of the compute operator, beside those that every operator has."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

ACTIONS: Final = MetricSpec(
    "compute_actions_total",
    MetricKind.COUNTER,
    "Total number of changes made to machines, runs, disks and claims, by reason.",
    ("reason",),
)

METRICS: Final[tuple[MetricSpec, ...]] = (ACTIONS,)
"""What the process registers and the reference lists."""
