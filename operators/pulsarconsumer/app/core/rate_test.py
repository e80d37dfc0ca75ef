"""The rate is never exceeded, and not missed either."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core.rate import RateLimit


@given(st.floats(0.5, 10_000), st.lists(st.floats(0, 2), min_size=1, max_size=200))
def test_messages_never_come_faster_than_the_rate(rate: float, pauses: list[float]) -> None:
    now = 0.0
    limit = RateLimit(rate, now)
    starts: list[float] = []
    for pause in pauses:
        now += pause
        now += limit.reserve(now)
        starts.append(now)

    burst = max(1.0, rate / 10)
    for first, begin in enumerate(starts):
        count = len([start for start in starts[first:] if start <= begin + 1.0])
        assert count <= rate + burst + 1.001


def test_waiting_costs_no_more_than_the_rate_asks() -> None:
    now = 0.0
    limit = RateLimit(100, now)
    for _ in range(1000):
        now += limit.reserve(now)

    assert 9.8 <= now <= 10.0


def test_clock_that_goes_back_is_no_credit() -> None:
    limit = RateLimit(1, 100.0)

    assert limit.reserve(100.0) == 0
    assert limit.reserve(50.0) == 1.0
    assert limit.reserve(100.0) == 2.0
