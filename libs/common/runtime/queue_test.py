"""Tests of the work queue, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Key
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.queue import (
    PRIORITY_EXPEDITE,
    PRIORITY_LIVE,
    PRIORITY_RESYNC,
    QueueClosed,
    WorkQueue,
)
from libs.common.testing.clock import FakeClock

A, B, C = Key("one", "a"), Key("one", "b"), Key("two", "c")


def build_queue(clock: FakeClock | None = None, *, min_interval: float = 0.0) -> WorkQueue:
    return WorkQueue(
        backoff=BackoffPolicy(base=1.0, maximum=8.0, jitter=0.0),
        clock=clock or FakeClock(),
        rng=lambda: 0.0,
        min_interval=min_interval,
    )


async def take_all(queue: WorkQueue) -> list[Key]:
    taken = []
    while len(queue):
        key = await queue.get()
        taken.append(key)
        queue.done(key)
    return taken


async def test_key_added_twice_is_handed_out_once() -> None:
    queue = build_queue()
    queue.add(A)
    queue.add(A)

    assert await take_all(queue) == [A]


async def test_key_added_while_worked_on_is_handed_out_again_afterwards() -> None:
    queue = build_queue()
    queue.add(A)
    held = await queue.get()
    queue.add(A)

    assert len(queue) == 0, "never two workers on one key"
    queue.done(held)
    assert await take_all(queue) == [A]


async def test_higher_priority_goes_first() -> None:
    queue = build_queue()
    queue.add(A, priority=PRIORITY_RESYNC)
    queue.add(B, priority=PRIORITY_LIVE)
    queue.add(C, priority=PRIORITY_EXPEDITE)

    assert await take_all(queue) == [C, B, A]


async def test_waiting_key_is_raised_but_never_lowered() -> None:
    queue = build_queue()
    queue.add(B, priority=PRIORITY_LIVE)
    queue.add(A, priority=PRIORITY_RESYNC)
    queue.add(A, priority=PRIORITY_EXPEDITE)
    queue.add(A, priority=PRIORITY_RESYNC)

    assert await take_all(queue) == [A, B]
    assert queue.idle


async def test_flood_in_one_namespace_does_not_starve_another() -> None:
    queue = build_queue()
    for number in range(100):
        queue.add(Key("noisy", str(number)))
    queue.add(C)

    first = [await queue.get(), await queue.get()]

    assert C in first


async def test_delayed_key_comes_when_its_time_has_come() -> None:
    clock = FakeClock()
    queue = build_queue(clock)
    queue.add(A, after=10)

    clock.advance(9.9)
    assert len(queue) == 0
    clock.advance(0.1)
    assert await take_all(queue) == [A]


async def test_earlier_wish_wins_and_later_one_does_not_put_it_off() -> None:
    clock = FakeClock()
    queue = build_queue(clock)
    queue.add(A, after=10)
    queue.add(A, after=3)
    queue.add(A, after=30)

    clock.advance(3)

    assert await take_all(queue) == [A]
    assert queue.delayed == 0


async def test_due_within_tells_of_the_delays_that_are_left() -> None:
    clock = FakeClock()
    queue = build_queue(clock)
    assert not queue.is_due_within(60)

    queue.add(A, after=300)
    queue.add(B, after=70)
    assert not queue.is_due_within(60)
    clock.advance(20)
    assert queue.is_due_within(60)
    assert not queue.is_due_within(0)
    clock.advance(50)

    assert await take_all(queue) == [B]
    assert not queue.is_due_within(60)


async def test_event_overtakes_the_delay_of_its_key() -> None:
    clock = FakeClock()
    queue = build_queue(clock)
    queue.add(A, after=300)
    queue.add(A)

    assert await take_all(queue) == [A]
    assert clock.next_due() is None


async def test_failures_back_off_exponentially_and_success_forgets_them() -> None:
    queue = build_queue()

    delays = [queue.retry(A) for _ in range(6)]
    queue.forget(A)

    assert delays == [1, 2, 4, 8, 8, 8]
    assert queue.retry(A) == 1


async def test_asked_delay_replaces_the_back_off() -> None:
    assert build_queue().retry(A, after=42) == 42


async def test_least_interval_between_two_passes_is_kept() -> None:
    clock = FakeClock()
    queue = build_queue(clock, min_interval=5.0)
    queue.add(A)
    queue.done(await queue.get())
    queue.add(A)

    assert len(queue) == 0
    clock.advance(5)
    assert await take_all(queue) == [A]


async def test_least_interval_counts_from_the_start_of_a_pass() -> None:
    """As the setting says: a pass that takes longer than that is not put off any further."""
    clock = FakeClock()
    queue = build_queue(clock, min_interval=5.0)
    queue.add(A)
    key = await queue.get()
    clock.advance(4)
    queue.add(A)
    queue.done(key)
    assert len(queue) == 0

    clock.advance(1)
    assert len(queue) == 1


async def test_closed_queue_hands_out_nothing_and_wakes_its_takers() -> None:
    queue = build_queue()
    waiter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.close()

    with pytest.raises(QueueClosed):
        await waiter
    queue.add(A)
    assert len(queue) == 0


async def test_drain_waits_for_the_keys_in_work() -> None:
    queue = build_queue()
    queue.add(A)
    key = await queue.get()
    queue.close()
    drained = asyncio.create_task(queue.drained())
    await asyncio.sleep(0)
    assert not drained.done()

    queue.done(key)
    await drained


async def test_canceled_taker_does_not_swallow_a_key() -> None:
    queue = build_queue()
    gone = asyncio.create_task(queue.get())
    stays = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)
    gone.cancel()

    assert await asyncio.wait_for(stays, 30) == A


KEYS = st.sampled_from([A, B, C, Key("two", "d")])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), KEYS, st.sampled_from([-100, 0, 100]), st.floats(0, 3)),
            st.tuples(st.just("take"), KEYS, st.just(0), st.just(0.0)),
            st.tuples(st.just("done"), KEYS, st.just(0), st.just(0.0)),
            st.tuples(st.just("tick"), KEYS, st.just(0), st.floats(0, 2)),
        ),
        max_size=60,
    )
)
def test_no_schedule_loses_a_key_or_hands_it_out_twice_at_once(
    schedule: list[tuple[str, Key, int, float]],
) -> None:
    """Whatever happens, each key that was added last is handed out once more after that."""

    async def play() -> None:
        clock = FakeClock()
        queue = build_queue(clock)
        owed: set[Key] = set()
        held: set[Key] = set()
        for action, key, priority, seconds in schedule:
            if action == "add":
                queue.add(key, priority=priority, after=seconds)
                owed.add(key)
            elif action == "tick":
                clock.advance(seconds)
            elif action == "take" and len(queue):
                taken = await queue.get()
                assert taken not in held
                held.add(taken)
                owed.discard(taken)
            elif action == "done" and key in held:
                held.discard(key)
                queue.done(key)
        clock.advance(10)
        for key in held:
            queue.done(key)
        clock.advance(10)
        assert owed <= set(await take_all(queue))

    asyncio.run(play())
