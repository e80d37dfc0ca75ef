"""Metrics of the volumes operator, beside those that every operator has."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

ACTIONS: Final = MetricSpec(
    "volumes_actions_total",
    MetricKind.COUNTER,
    "Total number of changes made to claims and snapshots, by reason.",
    ("reason",),
)

METRICS: Final[tuple[MetricSpec, ...]] = (ACTIONS,)
"""What the process registers and the reference lists."""
