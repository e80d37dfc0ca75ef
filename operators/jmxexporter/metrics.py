"""Metrics of the jmxexporter operator, in addition to the common metrics."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

INJECTORS: Final = MetricSpec(
    "jmxexporter_injectors_started_total",
    MetricKind.COUNTER,
    "Total number of ephemeral containers that were added to pods, by action.",
    ("action",),
)
JVMS_LOST: Final = MetricSpec(
    "jmxexporter_jvms_lost_total",
    MetricKind.COUNTER,
    "Total number of times that a JVM ended during an injection and the circuit breaker opened.",
)
STARTUPS: Final = MetricSpec(
    "jmxexporter_startup_pods_total",
    MetricKind.COUNTER,
    "Total number of new pods that an exporter with spec.startup selects, by result: prepared "
    "or unchanged.",
    ("outcome",),
)
# A scrape adds the namespace of the operator as `namespace`, so the label of the object has another
# name.
PODS: Final = MetricSpec(
    "jmxexporter_pods",
    MetricKind.GAUGE,
    "Number of pods that an exporter selects, by state: instrumented, pending or failed.",
    ("object_namespace", "object", "state"),
)
FAILING: Final = MetricSpec(
    "jmxexporter_failing_scrapes",
    MetricKind.GAUGE,
    "Number of JVMs of an exporter whose last scrape failed or was incomplete.",
    ("object_namespace", "object"),
)
BREAKER: Final = MetricSpec(
    "jmxexporter_breaker_open",
    MetricKind.GAUGE,
    "Whether the circuit breaker is open: 1 means that no further JVM is injected because one ended"
    " during an injection.",
    ("object_namespace", "object"),
)

METRICS: Final[tuple[MetricSpec, ...]] = (INJECTORS, JVMS_LOST, STARTUPS, PODS, FAILING, BREAKER)
"""What the process registers and the reference lists."""
