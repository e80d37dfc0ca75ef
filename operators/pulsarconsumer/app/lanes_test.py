"""Work runs as many pieces at a time as there are lanes, and keeps the order of a group."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core.slot import Slot
from operators.pulsarconsumer.app.harness import wait_until
from operators.pulsarconsumer.app.lanes import Blocked, Lanes

type Item = tuple[str, int]
LENDER = object()


@contextmanager
def stopping[T](lanes: Lanes[T]) -> Iterator[Lanes[T]]:
    try:
        yield lanes
    finally:
        lanes.stop()


def group(item: Item) -> str:
    return item[0]


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.sampled_from("abcdef"), max_size=60),
    st.sets(st.integers(0, 59), max_size=5),
)
def test_work_of_a_group_stays_in_order_even_if_some_of_it_is_tried_again(
    count: int, groups: list[str], failing: set[int]
) -> None:
    done: list[Item] = []
    again: list[Item] = []

    def work(item: Item, _slot: object) -> Blocked[Item] | None:
        if item[1] in failing:
            failing.remove(item[1])
            again.append(item)
            return Blocked(item)
        done.append(item)
        return None

    with stopping(Lanes(work, count, group)) as lanes:
        lanes.submit([(name, number) for number, name in enumerate(groups)])
        wait_until(lambda: len(done) + len(again) + len(lanes.pending()) >= len(groups), "begun")

        def is_done() -> bool:
            lanes.nudge()
            while again:
                lanes.submit([again.pop()])
            return len(done) == len(groups)

        wait_until(is_done, "all is done")

    for name in set(groups):
        mine = [number for other, number in done if other == name]
        assert mine == [number for number, other in enumerate(groups) if other == name]


def test_item_does_not_overtake_one_that_another_thread_has_just_taken() -> None:
    begun: list[Item] = []
    overtaken = threading.Event()

    def work(item: Item, _slot: object) -> None:
        begun.append(item)
        if item == ("a", 1):
            overtaken.set()

    def slow_group(item: Item) -> str:
        if item == ("a", 0) and not begun:
            overtaken.wait(1)
        return item[0]

    with stopping(Lanes(work, 2, slow_group)) as lanes:
        lanes.submit([("a", 0)])
        lanes.submit([("a", 1)])

        def are_done() -> bool:
            lanes.nudge()
            return len(begun) == 2

        wait_until(are_done, "both are done")

    assert begun == [("a", 0), ("a", 1)]


def test_independent_work_runs_in_all_lanes_at_once() -> None:
    met = threading.Barrier(3, timeout=10)
    passed: list[int] = []

    def work(_: Item, _slot: object) -> None:
        passed.append(met.wait())

    with stopping(Lanes(work, 3)) as lanes:
        lanes.submit([("", 0), ("", 1), ("", 2)])

        def are_done() -> bool:
            lanes.nudge()
            return len(passed) == 3

        wait_until(are_done, "all three met")


def test_no_more_is_worked_on_than_there_are_lanes() -> None:
    go, running = threading.Event(), threading.Semaphore(0)
    most: list[int] = []

    def work(_: Item, _slot: object) -> None:
        running.release()
        most.append(len(lanes.pending()))
        go.wait(10)

    with stopping(Lanes(work, 2)) as lanes:
        lanes.submit([("", number) for number in range(5)])

        def two_run() -> bool:
            lanes.nudge()
            return len(most) == 2

        wait_until(two_run, "two run")
        lanes.nudge()
        assert not lanes.wait_idle(0.05)
        assert len(most) == 2
        go.set()
        wait_until(lambda: len(most) == 5, "all ran")
        assert lanes.wait_idle(10)


def test_group_that_is_blocked_stops_no_other() -> None:
    done: list[Item] = []

    def work(item: Item, _slot: object) -> Blocked[Item] | None:
        if item == ("a", 0) and not done:
            done.append(item)
            return Blocked(item)
        done.append(item)
        return None

    with stopping(Lanes(work, 1, group)) as lanes:
        lanes.submit([("a", 0), ("a", 1), ("b", 2)])
        wait_until(lambda: len(done) == 2, "the other group is done")
        assert done == [("a", 0), ("b", 2)]
        lanes.submit([("a", 0)])
        wait_until(lambda: len(done) == 4, "the first is done")
        assert done[2:] == [("a", 0), ("a", 1)]


def test_thread_that_is_lent_works_on_quick_items_itself() -> None:
    threads: list[int] = []

    def work(_: Item, _slot: object) -> None:
        threads.append(threading.get_ident())

    with stopping(Lanes(work, 1)) as lanes:
        lanes.submit([("", number) for number in range(5)], lender=LENDER)

    assert threads == [threading.get_ident()] * 5


def test_thread_that_is_lent_is_given_back_when_calls_are_slow() -> None:
    threads: list[int] = []

    def work(_: Item, slot: Slot[Item]) -> None:
        threads.append(threading.get_ident())
        threading.Event().wait(0.01)
        slot.seconds = 0.01

    with stopping(Lanes(work, 1)) as lanes:
        lanes.submit([("", number) for number in range(5)], lender=LENDER)
        wait_until(lambda: len(threads) == 5, "the others are done")

    mine = threading.get_ident()
    assert [thread == mine for thread in threads] == [True] + [False] * 4


@pytest.mark.parametrize("count", [1, 3])
def test_thread_is_lent_again_when_calls_are_quick_again_while_items_always_wait(
    count: int,
) -> None:
    mine = threading.get_ident()
    threads: list[int] = []

    def work(item: Item, slot: Slot[Item]) -> None:
        slot.seconds = 0.01 if item == ("slow", 0) else 0.0
        if threading.get_ident() != mine:
            # So long that this thread never sees an empty queue.
            threading.Event().wait(0.0005)
        threads.append(threading.get_ident())

    with stopping(Lanes(work, count)) as lanes:
        lanes.submit([("slow", 0)], lender=LENDER)
        while mine not in threads[1:] and len(threads) < 3000:
            lanes.submit([("", number) for number in range(500)], lender=LENDER)

    assert mine in threads[1:]
    assert threads[1] != mine


def test_thread_whose_call_waits_is_detached_and_works_no_further() -> None:
    returned: list[bool] = []
    done: list[tuple[int, int]] = []
    go = threading.Event()

    def work(item: Item, slot: Slot[Item]) -> None:
        if item == ("", 0):
            go.wait(60)
            slot.seconds = 60.0
        done.append((item[1], threading.get_ident()))

    with stopping(Lanes(work, 1)) as lanes:
        items = [("", number) for number in range(3)]
        thread = threading.Thread(
            target=lambda: returned.append(lanes.submit(items, lender=LENDER)), daemon=True
        )
        thread.start()
        wait_until(lambda: [slot.item for slot in lanes.slots()] == items[:1], "it waits")
        (slot,) = lanes.slots()
        assert lanes.detach(slot) is LENDER
        assert lanes.detach(slot) is None
        assert lanes.submit([("", 3)], lender=LENDER)
        go.set()
        wait_until(lambda: len(done) == 4, "all are done")
        thread.join(60)

    assert returned == [False]
    assert [number for number, _ in done] == [0, 1, 2, 3]
    assert [ident == done[0][1] for _, ident in done] == [True, False, False, False]


@pytest.mark.parametrize(
    ("took", "under_way", "most"),
    [(0.0, 0.0, 100), (0.01, 0.0, 20), (0.01, 0.09, 2), (30.0, 0.0, 0), (0.0, 30.0, 0)],
)
def test_fewer_items_wait_while_calls_take_long(took: float, under_way: float, most: int) -> None:
    """As long as they wait here, no other process can work on them."""
    go, clock = threading.Event(), [1000.0]

    def work(item: Item, slot: Slot[Item]) -> None:
        slot.began = clock[0]
        if item[0]:
            go.wait(60)
        slot.began, slot.seconds = 0.0, took

    asked: list[int] = []

    def give_up() -> bool:
        asked.append(len(lanes.pending()) - 2)
        return True

    with stopping(Lanes(work, 2, monotonic=lambda: clock[0])) as lanes:
        lanes.submit([("", 0)])
        assert lanes.wait_idle(60)
        lanes.submit([("waits", 1), ("waits", 2)], lambda: True)

        def are_begun() -> bool:
            lanes.nudge()
            return sum(slot.began > 0 for slot in lanes.slots()) == 2

        wait_until(are_begun, "both lanes are busy")
        clock[0] += under_way
        asked.clear()
        for number in range(200):
            lanes.submit([("waits", number)], give_up)
        go.set()

    assert asked[0] == most + 1
    assert len(asked) == 200 - most


def test_purged_item_is_not_worked_on() -> None:
    done: list[Item] = []
    go = threading.Event()

    def work(item: Item, _slot: object) -> None:
        go.wait(60)
        done.append(item)

    with stopping(Lanes(work, 1)) as lanes:
        lanes.submit([("", number) for number in range(5)])
        wait_until(lambda: len(lanes.slots()) == 1 and lanes.slots()[0].item is not None, "begun")
        lanes.purge(lambda item: item[1] in (2, 3))
        # Messages that are pending are not taken when the broker sends them again.
        assert [number for _, number in lanes.pending()] == [0, 1, 4]
        lanes.purge(lambda item: item[1] == 4)
        assert [number for _, number in lanes.pending()] == [0, 1]
        lanes.submit([("", 4)])
        go.set()
        wait_until(lambda: len(done) == 3, "the others are done")

    assert [number for _, number in done] == [0, 1, 4]


def test_nothing_is_begun_after_the_stop() -> None:
    began: list[Item] = []
    go = threading.Event()

    def work(item: Item, _slot: object) -> None:
        began.append(item)
        go.wait(10)

    lanes = Lanes(work, 1)
    lanes.submit([("", 0), ("", 1)])
    wait_until(lambda: bool(began), "the first has begun")
    lanes.stop()
    go.set()

    assert lanes.wait_idle(10)
    assert began == [("", 0)]
