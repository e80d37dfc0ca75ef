"""Threads handle as many messages at a time as they may, and keep the order of a group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core.states import Event, State
from operators.pulsarconsumer.app.harness import wait_until
from operators.pulsarconsumer.app.memory import Memory, Unit
from operators.pulsarconsumer.app.memory_test import Clock, received
from operators.pulsarconsumer.app.pool import HandlerThreads, Slot


def build_units(groups: Sequence[str]) -> list[Unit]:
    return [[received(number, group=group)] for number, group in enumerate(groups)]


@contextmanager
def handling(
    work: Callable[[int, Slot], bool],
    count: int,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[Memory, HandlerThreads]]:
    """Handle messages by their number; those for which `work` returns False fail, and are due."""
    memory = Memory(1000, 10**6)
    failures: list[BaseException] = []

    def process(unit: Unit, slot: Slot) -> None:
        (message,) = unit
        if work(int(message.identity.split(":")[1]), slot):
            memory.finish(message, Event.SUCCEEDED)
        else:
            memory.fail(message, 0.0, message.attempt + 1)

    threads = HandlerThreads(memory, process, count, failures.append, clock)
    try:
        yield memory, threads
    finally:
        memory.stop()
    assert not failures


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.sampled_from(["", *"abcdef"]), max_size=60),
    st.sets(st.integers(0, 59), max_size=5),
)
def test_messages_of_a_group_stay_in_order_even_if_some_are_tried_again(
    count: int, groups: list[str], failing: set[int]
) -> None:
    done: list[int] = []

    def work(number: int, _slot: Slot) -> bool:
        if number in failing:
            failing.remove(number)
            return False
        done.append(number)
        return True

    with handling(work, count) as (memory, threads):
        threads.submit(build_units(groups), lambda: True)

        def is_done() -> bool:
            memory.pop_due(1.0)
            threads.nudge()
            return len(memory) == 0

        wait_until(is_done, "all are done")

    for name in {*groups} - {""}:
        mine = [number for number in done if groups[number] == name]
        assert mine == [number for number, other in enumerate(groups) if other == name]
    assert sorted(done) == list(range(len(groups)))


def test_no_more_threads_work_than_there_may_be() -> None:
    met, go = threading.Barrier(3, timeout=60), threading.Event()
    begun: list[int] = []

    def work(number: int, _slot: Slot) -> bool:
        begun.append(number)
        if number < 3:
            met.wait()
        return go.wait(60)

    with handling(work, 3) as (memory, threads):
        threads.submit(build_units([""] * 5), lambda: True)

        def all_run() -> bool:
            threads.nudge()
            return len(begun) == 3

        wait_until(all_run, "three run at a time")
        threads.nudge()
        assert not memory.wait_idle(0.05)
        assert (len(begun), len(threads.slots()), memory.queued) == (3, 3, 2)
        go.set()
        assert memory.wait_idle(60)
        assert len(begun) == 5


@pytest.mark.parametrize(
    ("took", "under_way", "most"), [(0.01, 0.0, 20), (0.01, 0.09, 2), (30.0, 0.0, 0)]
)
def test_fewer_messages_wait_while_calls_take_long(
    took: float, under_way: float, most: int
) -> None:
    """As long as they wait here, no other process can handle them."""
    go, clock = threading.Event(), Clock()
    clock.now = 1000.0

    def work(number: int, slot: Slot) -> bool:
        slot.began = clock.now
        if number:
            go.wait(60)
        elif clock.now == 1000.0:
            clock.now += took
        slot.began = 0.0
        return True

    asked: list[int] = []
    with handling(work, 2, clock) as (memory, threads):

        def give_up() -> bool:
            asked.append(memory.queued)
            return True

        assert not threads.is_fast, "nothing is known yet"
        threads.submit(build_units([""]), lambda: True)
        assert memory.wait_idle(60)
        units = build_units([""] * (most + 8))
        threads.submit(units[1:3], lambda: True)

        def are_begun() -> bool:
            threads.nudge()
            return sum(slot.began > 0 for slot in threads.slots()) == 2

        wait_until(are_begun, "both threads are busy")
        clock.now += under_way
        for unit in units[3:]:
            threads.submit([unit], give_up)
        go.set()

    assert asked[0] == most + 1
    assert len(asked) == 5


@pytest.mark.parametrize(("took", "is_fast"), [(0.0001, True), (0.01, False)])
def test_many_messages_are_received_only_while_calls_are_fast(took: float, is_fast: bool) -> None:
    clock = Clock()

    def work(_number: int, _slot: Slot) -> bool:
        clock.now += took
        return True

    with handling(work, 1, clock) as (memory, threads):
        threads.submit(build_units([""] * 3), lambda: True)
        assert memory.wait_idle(60)
        assert threads.is_fast is is_fast


def test_nothing_is_begun_after_the_stop() -> None:
    began: list[int] = []
    go = threading.Event()

    def work(number: int, _slot: Slot) -> bool:
        began.append(number)
        return go.wait(60)

    units: list[Any] = build_units(["", ""])
    with handling(work, 1) as (memory, threads):
        threads.submit(units, lambda: True)
        wait_until(lambda: bool(began), "the first has begun")
        memory.stop()
        go.set()
        assert memory.wait_idle(60)

    assert began == [0]
    assert [unit[0].state for unit in units] == [State.DONE, State.RECEIVED]
