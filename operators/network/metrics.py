"""Metrics of the network operator, in addition to the common metrics."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

WRITES: Final = MetricSpec(
    "network_writes_total",
    MetricKind.COUNTER,
    "Total number of changes made to policies and attachments, by the kind of their owner.",
    ("owner",),
)
REPAIRS: Final = MetricSpec(
    "network_repairs_total",
    MetricKind.COUNTER,
    "Total number of policies and attachments that another client had changed and the "
    "operator corrected.",
    ("kind",),
)
COMPILE_SECONDS: Final = MetricSpec(
    "network_compile_seconds",
    MetricKind.HISTOGRAM,
    "Time that the compilation of a firewall takes.",
    buckets=(0.0001, 0.001, 0.01, 0.1, 1, 10),
)

METRICS: Final[tuple[MetricSpec, ...]] = (WRITES, REPAIRS, COMPILE_SECONDS)
"""Metrics that the process registers and the reference documentation lists."""
