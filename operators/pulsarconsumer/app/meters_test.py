"""What is counted from what was noted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.metric_specs import MetricSpec
from libs.common.metrics import Metrics
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.metrics import GAUGES, HANDLE_TIME, MESSAGE_AGE


def build() -> tuple[Metrics, Meters]:
    metrics = Metrics(GAUGES, framework=False, process=False)
    return metrics, Meters(metrics)


def read_counts(metrics: Metrics, spec: MetricSpec) -> list[float]:
    """Return how many values were up to each bound, and in total."""
    bounds = [*(repr(bound) for bound in spec.buckets), "+Inf"]
    return [metrics.value(f"{spec.name}_bucket", le=bound) or 0.0 for bound in bounds]


@given(st.lists(st.floats(0.0, 1000.0) | st.sampled_from(HANDLE_TIME.buckets), max_size=50))
def test_each_call_is_counted_by_its_duration(seconds: list[float]) -> None:
    metrics, meters = build()
    for each in seconds:
        meters.took(each)

    assert read_counts(metrics, HANDLE_TIME) == [
        *(sum(each <= bound for each in seconds) for bound in HANDLE_TIME.buckets),
        len(seconds),
    ]
    assert metrics.value(f"{HANDLE_TIME.name}_sum") == pytest.approx(sum(seconds))


def test_messages_that_came_together_are_spread_between_the_first_and_the_last() -> None:
    metrics, meters = build()
    meters.receive("topic", 3, 40.0, 4.0)
    meters.receive("topic", 1, 2.0, 2.0)
    meters.receive("retry", 10, 70.0, 70.0)
    # The clock of the producer is ahead.
    meters.receive("topic", 2, -5.0, -5.0)

    counts = dict(zip(MESSAGE_AGE.buckets, read_counts(metrics, MESSAGE_AGE), strict=False))
    assert [counts[bound] for bound in (0.01, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)] == [
        2,
        2,
        4,
        4,
        5,
        6,
        16,
    ]
    assert metrics.value(f"{MESSAGE_AGE.name}_sum") == 3 * 22.0 + 2.0 + 700.0
    assert metrics.value("pulsar_consumer_messages_received_total", source="topic") == 6
    assert metrics.value("pulsar_consumer_messages_received_total", source="retry") == 10


def test_results_are_counted_once() -> None:
    metrics, meters = build()
    for result in ("acknowledged", "retried", "acknowledged"):
        meters.settle[result](None)
    name = "pulsar_consumer_messages_handled_total"

    meters.count()

    assert metrics.value(name, result="acknowledged") == 2
    assert metrics.value(name, result="retried") == 1
    assert metrics.value(name, result="skipped") == 0
