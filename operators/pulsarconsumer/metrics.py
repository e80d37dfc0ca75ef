"""Metrics of the pulsarconsumer operator, in addition to the common metrics."""

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

# A scrape adds the namespace of the operator as `namespace`, so the label of the object has another
# name.
_OBJECT: Final = ("object_namespace", "object")

LOOKS: Final = MetricSpec(
    "pulsarconsumer_broker_looks_total",
    MetricKind.COUNTER,
    "Total number of polls of brokers by result: Answered, or the reason of the failure.",
    ("result",),
)
LOOK_DURATION: Final = MetricSpec(
    "pulsarconsumer_broker_look_duration_seconds",
    MetricKind.HISTOGRAM,
    "Duration of a poll of a broker, in seconds.",
    (),
    (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0),
)
REACHABLE: Final = MetricSpec(
    "pulsarconsumer_broker_reachable",
    MetricKind.GAUGE,
    "Whether the last poll of the broker of a PulsarConsumer succeeded.",
    _OBJECT,
)
BACKLOG: Final = MetricSpec(
    "pulsarconsumer_backlog_messages",
    MetricKind.GAUGE,
    "Estimated number of messages that wait in the subscription of a PulsarConsumer.",
    _OBJECT,
)
OLDEST: Final = MetricSpec(
    "pulsarconsumer_oldest_message_age_seconds",
    MetricKind.GAUGE,
    "Age of the oldest message that waits, in seconds; 0 if none waits. Excludes topics "
    "with delayed messages.",
    _OBJECT,
)
CONNECTED: Final = MetricSpec(
    "pulsarconsumer_consumers_connected",
    MetricKind.GAUGE,
    "Number of consumers that the broker has in the subscription of a PulsarConsumer.",
    _OBJECT,
)
RETRIES: Final = MetricSpec(
    "pulsarconsumer_retries",
    MetricKind.GAUGE,
    "Entries in the retry topic of a PulsarConsumer.",
    _OBJECT,
)
DEAD_LETTERS: Final = MetricSpec(
    "pulsarconsumer_dead_letters",
    MetricKind.GAUGE,
    "Entries in the dead-letter topic of a PulsarConsumer.",
    _OBJECT,
)
DESIRED: Final = MetricSpec(
    "pulsarconsumer_replicas_desired",
    MetricKind.GAUGE,
    "Number of consumers that a PulsarConsumer should have.",
    _OBJECT,
)

OBJECT_GAUGES: Final = (REACHABLE, BACKLOG, OLDEST, CONNECTED, RETRIES, DEAD_LETTERS, DESIRED)
"""Gauges with a series for each PulsarConsumer."""
METRICS: Final[tuple[MetricSpec, ...]] = (LOOKS, LOOK_DURATION, *OBJECT_GAUGES)
"""Metrics that the process registers and the reference documentation lists."""
