from __future__ import annotations

from lab.soak.churn import Clock


def test_time_in_which_a_run_was_stopped_does_not_count() -> None:
    times = iter([100.0, 105.0, 110.0, 1800.0, 1805.0])
    clock = Clock(lambda: next(times))

    assert [clock.look() for _ in range(4)] == [5.0, 10.0, 20.0, 25.0]
