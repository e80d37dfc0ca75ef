"""Work runs as many pieces at a time as there are lanes, and keeps the order of a key."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from operators.pulsarconsumer.app.lanes import build_lanes


def run(work: Callable[[], object]) -> None:
    work()


@settings(max_examples=20)
@given(st.integers(1, 5), st.lists(st.sampled_from("abcdef"), max_size=60))
def test_work_of_a_key_stays_in_order(count: int, keys: list[str]) -> None:
    lanes = build_lanes(run, count, ordered=True)
    done: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        lanes.submit(partial(done.setdefault(key, []).append, number), key)

    assert lanes.wait_idle(10)
    for key, numbers in done.items():
        assert numbers == [number for number, other in enumerate(keys) if other == key]


def test_unordered_work_runs_in_all_lanes_at_once() -> None:
    lanes = build_lanes(run, 3, ordered=False)
    met = threading.Barrier(3, timeout=10)
    for _ in range(3):
        lanes.submit(met.wait, "")

    assert lanes.wait_idle(10)


def test_no_more_is_taken_than_there_are_lanes() -> None:
    lanes = build_lanes(run, 2, ordered=False)
    go = threading.Event()
    for _ in range(2):
        lanes.submit(partial(go.wait, 10), "")
    third = threading.Thread(target=lanes.submit, args=(lambda: None, ""))
    third.start()

    assert not lanes.wait_idle(0.05)
    assert third.is_alive()
    go.set()
    third.join(10)
    assert lanes.wait_idle(10)


def test_one_lane_waits_for_the_other_source() -> None:
    lanes = build_lanes(run, 1, ordered=True)
    go, began = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go.wait(10)

    thread = threading.Thread(target=lanes.submit, args=(work, "k"))
    thread.start()
    assert began.wait(10)

    assert not lanes.wait_idle(0.05)
    go.set()
    assert lanes.wait_idle(10)
    thread.join(10)
