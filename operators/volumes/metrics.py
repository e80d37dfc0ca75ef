"""Metrics of the volumes operator, in addition to the common metrics."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

ACTIONS: Final = MetricSpec(
    "volumes_actions_total",
    MetricKind.COUNTER,
    "Total number of changes made to claims and snapshots, by reason.",
    ("reason",),
)

METRICS: Final[tuple[MetricSpec, ...]] = (ACTIONS,)
"""Metrics that the process registers and the reference documentation lists."""
