"""Measurements are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.metric_specs import MetricSpec
from libs.common.metrics import Metrics
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.metrics import HANDLE_TIME, MESSAGE_AGE, METRICS


def build() -> tuple[Metrics, Meters]:
    metrics = Metrics(METRICS, framework=False, process=False)
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


def test_messages_are_counted_by_their_source_and_age() -> None:
    metrics, meters = build()
    meters.receive("topic", [40.0, 4.0])
    meters.receive("retry", [70.0])
    # The clock of the producer is ahead.
    meters.receive("topic", [-5.0])

    counts = dict(zip(MESSAGE_AGE.buckets, read_counts(metrics, MESSAGE_AGE), strict=False))
    assert [counts[bound] for bound in (0.01, 5.0, 30.0, 60.0, 300.0)] == [1, 2, 2, 3, 4]
    assert metrics.value(f"{MESSAGE_AGE.name}_sum") == 114.0
    assert metrics.value("pulsar_consumer_messages_received_total", source="topic") == 3
    assert metrics.value("pulsar_consumer_messages_received_total", source="retry") == 1


def test_results_are_counted() -> None:
    metrics, meters = build()
    for result in ("acknowledged", "retried", "acknowledged"):
        meters.settle(result)
    name = "pulsar_consumer_messages_handled_total"

    assert metrics.value(name, result="acknowledged") == 2
    assert metrics.value(name, result="retried") == 1
    assert metrics.value(name, result="skipped") == 0
