"""Tests of the work queue, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Key
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.namespace_queue import PRIORITY_EXPEDITE, PRIORITY_LIVE, PRIORITY_RESYNC
from libs.common.runtime.queue import QueueClosed, WorkQueue
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
    low, live, urgent = (Key("one", name) for name in ("low", "live", "urgent"))
    queue.add(low, priority=PRIORITY_RESYNC)
    queue.add(live, priority=PRIORITY_LIVE)
    queue.add(urgent, priority=PRIORITY_EXPEDITE)

    assert await take_all(queue) == [urgent, live, low]


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


async def test_deletions_of_one_namespace_do_not_delay_a_change_in_another() -> None:
    queue = build_queue()
    for number in range(1000):
        queue.add(Key("noisy", str(number)), priority=PRIORITY_EXPEDITE)
    queue.add(Key("quiet", "changed"))
    queue.add(Key("restarted", "listed"), priority=PRIORITY_RESYNC)

    first = [await queue.get() for _ in range(3)]

    assert {key.namespace for key in first} == {"noisy", "quiet", "restarted"}


@pytest.mark.parametrize(
    ("hot", "cold", "share"),
    [
        (PRIORITY_EXPEDITE, PRIORITY_LIVE, 3 / 11),
        (PRIORITY_EXPEDITE, PRIORITY_RESYNC, 1 / 9),
        (PRIORITY_LIVE, PRIORITY_RESYNC, 1 / 4),
    ],
)
async def test_keys_that_are_always_urgent_leave_the_others_a_share(
    hot: int, cold: int, share: float
) -> None:
    queue = build_queue()
    for number in range(50):
        queue.add(Key("one", f"hot{number}"), priority=hot)
    for number in range(500):
        queue.add(Key("one", f"cold{number}"), priority=cold)
    served = 0
    for _ in range(1000):
        key = await queue.get()
        served += key.name.startswith("cold")
        if key.name.startswith("hot"):
            queue.add(key, priority=hot)
        queue.done(key)

    assert served == pytest.approx(1000 * share, abs=3)


async def test_change_that_comes_after_a_flood_of_less_urgent_keys_is_next() -> None:
    queue = build_queue()
    for number in range(100):
        queue.add(Key("one", str(number)), priority=PRIORITY_RESYNC)
    for _ in range(50):
        queue.done(await queue.get())
    queue.add(Key("one", "changed"))

    assert (await queue.get()).name == "changed"


@pytest.mark.parametrize("again", ["retry", "requeue", "add"])
async def test_key_keeps_its_priority_when_it_is_asked_for_again(again: str) -> None:
    """Else a restart with one failure each would make all keys as urgent as a user's change."""
    clock = FakeClock()
    queue = build_queue(clock)
    for number in range(100):
        queue.add(Key("one", str(number)), priority=PRIORITY_RESYNC)
    for _ in range(100):
        key = await queue.get()
        getattr(queue, again)(key)
        queue.done(key)
    clock.advance(10)
    queue.add(Key("one", "changed"))

    assert (await queue.get()).name == "changed"


async def test_passes_that_ask_for_the_next_at_once_are_backed_off() -> None:
    clock = FakeClock()
    queue = build_queue(clock)

    assert [queue.requeue(A) for _ in range(6)] == [0, 1, 2, 4, 8, 8]
    queue.forget(A)
    assert queue.requeue(A) == 0


async def test_raised_keys_leave_nothing_behind() -> None:
    queue = build_queue()
    for _ in range(3):
        for number in range(100):
            queue.add(Key("one", str(number)), priority=PRIORITY_RESYNC)
        for number in range(100):
            queue.add(Key("one", str(number)), priority=PRIORITY_LIVE)
        assert len(await take_all(queue)) == 100

    assert not queue._queues


def test_raising_a_key_costs_the_same_however_many_wait() -> None:
    """In processor time: 200 times as much with a search through the line."""

    def measure(waiting: int) -> int:
        queue = build_queue()
        keys = [Key("one", str(number)) for number in range(waiting)]
        for key in keys:
            queue.add(key, priority=PRIORITY_RESYNC)
        started = time.thread_time_ns()
        for key in keys[waiting // 2 : waiting // 2 + 500]:
            queue.add(key, priority=PRIORITY_LIVE)
        return time.thread_time_ns() - started

    assert min(measure(50_000) for _ in range(3)) < 10 * min(measure(1_000) for _ in range(3))


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


async def test_immediate_retries_are_backed_off_as_well() -> None:
    queue = build_queue()

    assert [queue.retry(A, after=0) for _ in range(3)] == [1, 2, 4]


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
    """A reconcile that takes longer than the setting is not delayed any further."""
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
    """Each key is handed out again after it was last added, whatever happens."""

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
