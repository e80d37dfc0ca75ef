"""Metrics of the jmxexporter operator, beside those that every operator has."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

INJECTORS: Final = MetricSpec(
    "jmxexporter_injectors_started_total",
    MetricKind.COUNTER,
    "Total number of ephemeral containers that were put into pods, by action.",
    ("action",),
)
JVMS_LOST: Final = MetricSpec(
    "jmxexporter_jvms_lost_total",
    MetricKind.COUNTER,
    "Total number of times that a JVM ended during an injection and the circuit breaker opened.",
)

METRICS: Final[tuple[MetricSpec, ...]] = (INJECTORS, JVMS_LOST)
"""What the process registers and the reference lists."""
