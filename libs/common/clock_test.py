"""The real clock and the manual clock of tests fulfil the same contract."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.clock import Clock, SystemClock
from libs.common.testing.clock import FakeClock
from libs.common.testing.waiting import turns


async def test_sleepers_of_a_fake_clock_wake_when_they_are_due() -> None:
    clock = FakeClock()
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleep(seconds)) for seconds in (3.0, 1.0, 2.0)]
    await turns()
    clock.advance(2.0)
    await turns()

    assert woken == [1.0, 2.0]
    assert clock.next_due() == pytest.approx(1.0)
    clock.advance(1.0)
    await asyncio.gather(*tasks)
    assert clock.next_due() is None


async def test_call_that_is_canceled_does_not_come() -> None:
    clock, calls = FakeClock(), list[str]()
    clock.call_later(1.0, lambda: calls.append("kept"))
    clock.call_later(1.0, lambda: calls.append("canceled")).cancel()

    clock.advance(5.0)

    assert calls == ["kept"]


async def test_callbacks_see_the_time_at_which_they_were_due() -> None:
    clock, seen = FakeClock(), list[float]()
    start = clock.now()
    for seconds in (2.0, 1.0):
        clock.call_later(seconds, lambda: seen.append((clock.now() - start).total_seconds()))

    clock.advance(10.0)

    assert seen == [1.0, 2.0]
    assert clock.monotonic() == 10.0


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()])
async def test_both_clocks_keep_the_contract(clock: Clock) -> None:
    before = clock.monotonic()

    assert clock.now().utcoffset() is not None
    await clock.sleep(0.0)
    assert clock.monotonic() >= before
    timer = clock.call_later(60.0, lambda: None)
    timer.cancel()
