"""Metrics of the consumer app."""

from __future__ import annotations

from typing import Final

from libs.common.metric_specs import MetricKind, MetricSpec

_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_AGES: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 86_400.0)

RECEIVED: Final = MetricSpec(
    "pulsar_consumer_messages_received_total",
    MetricKind.COUNTER,
    "Total number of messages received, by source: topic or retry.",
    ("source",),
)
HANDLED: Final = MetricSpec(
    "pulsar_consumer_messages_handled_total",
    MetricKind.COUNTER,
    "Total number of messages whose handling ended, by result: acknowledged, retried,"
    " dead_lettered, skipped.",
    ("result",),
)
HANDLE_TIME: Final = MetricSpec(
    "pulsar_consumer_handle_seconds",
    MetricKind.HISTOGRAM,
    "Duration of calls of the handler, in seconds.",
    (),
    _SECONDS,
)
MESSAGE_AGE: Final = MetricSpec(
    "pulsar_consumer_message_age_seconds",
    MetricKind.HISTOGRAM,
    "Seconds from the publishing of a message to its receipt here.",
    (),
    _AGES,
)
IN_FLIGHT: Final = MetricSpec(
    "pulsar_consumer_in_flight", MetricKind.GAUGE, "Number of messages that are being handled."
)
WAITING: Final = MetricSpec(
    "pulsar_consumer_waiting_retries",
    MetricKind.GAUGE,
    "Number of messages in memory that wait for their next attempt, or behind a message that does.",
)
WAITING_COPIES: Final = MetricSpec(
    "pulsar_consumer_waiting_copies",
    MetricKind.GAUGE,
    "Number of messages whose copy the retry or dead-letter topic has not stored yet.",
)
OLDEST_CALL: Final = MetricSpec(
    "pulsar_consumer_oldest_call_seconds",
    MetricKind.GAUGE,
    "Seconds since the start of the oldest running call of the handler; 0 if none runs.",
)
CONNECTED: Final = MetricSpec(
    "pulsar_consumer_connected",
    MetricKind.GAUGE,
    "Whether a topic of the subscription is connected, 1 or 0.",
)
BROKER_ERRORS: Final = MetricSpec(
    "pulsar_consumer_broker_errors_total",
    MetricKind.COUNTER,
    "Total number of requests to the broker that failed: subscribe, receive, acknowledge, retry,"
    " dead_letter, schema, attempts.",
    ("operation",),
)

METRICS: Final[tuple[MetricSpec, ...]] = (
    RECEIVED,
    HANDLED,
    HANDLE_TIME,
    MESSAGE_AGE,
    IN_FLIGHT,
    OLDEST_CALL,
    WAITING,
    WAITING_COPIES,
    CONNECTED,
    BROKER_ERRORS,
)
"""Metrics that the contract of the app lists."""
SOURCES: Final = ("topic", "retry")
RESULTS: Final = ("acknowledged", "retried", "dead_lettered", "skipped")
OPERATIONS: Final = (
    "subscribe",
    "receive",
    "acknowledge",
    "retry",
    "dead_letter",
    "schema",
    "attempts",
)
