"""Where messages are handled: one at a time, or several in lanes that keep the order of a key."""

from __future__ import annotations

import queue
import threading
import time
import zlib
from collections.abc import Callable
from typing import Protocol

type Work[T] = Callable[[T], object]
"""Handles and settles what was received; it raises nothing."""


class Lanes[T](Protocol):
    """Work on items, as many at a time as there are lanes."""

    def submit(self, item: T, key: str) -> None:
        """Work on an item, or wait for a lane that will; items of one key stay in order."""

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing runs, and tell whether it came to that in time."""


class OneLane[T]:
    """Work on one item at a time, in the thread that brings it."""

    def __init__(self, work: Work[T]) -> None:
        """Start idle."""
        self._work = work
        self._turn = threading.Lock()

    def submit(self, item: T, key: str) -> None:
        """Work on an item once the other source's is done."""
        with self._turn:
            self._work(item)

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing runs, and tell whether it came to that in time."""
        idle = self._turn.acquire(timeout=max(0.0, seconds))
        if idle:
            self._turn.release()
        return idle


class ManyLanes[T]:
    """Work on several items at a time, each in a thread of its own."""

    def __init__(self, work: Work[T], count: int, *, ordered: bool) -> None:
        """Start the threads, which live as long as the process.

        Args:
            work: What is done with an item.
            count: How many lanes.
            ordered: Whether items of one key go to one lane, or to whichever is free.
        """
        self._work = work
        self._count = count
        self._free = threading.Semaphore(count)
        queues = count if ordered else 1
        self._queues: list[queue.SimpleQueue[T]] = [queue.SimpleQueue() for _ in range(queues)]
        for number in range(count):
            lane = self._queues[number % queues]
            name = f"lane-{number}"
            threading.Thread(target=self._run, args=(lane,), name=name, daemon=True).start()

    def submit(self, item: T, key: str) -> None:
        """Hand an item to a lane, once fewer are under way than there are lanes."""
        self._free.acquire()
        lane = zlib.crc32(key.encode()) % len(self._queues) if key else 0
        self._queues[lane].put(item)

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing runs, and tell whether it came to that in time."""
        deadline = time.monotonic() + seconds
        taken = 0
        while taken < self._count:
            if not self._free.acquire(timeout=max(0.0, deadline - time.monotonic())):
                break
            taken += 1
        for _ in range(taken):
            self._free.release()
        return taken == self._count

    def _run(self, lane: queue.SimpleQueue[T]) -> None:
        while True:
            item = lane.get()
            try:
                self._work(item)
            finally:
                self._free.release()


def build_lanes[T](work: Work[T], count: int, *, ordered: bool) -> Lanes[T]:
    """Return as many lanes as asked for."""
    return ManyLanes(work, count, ordered=ordered) if count > 1 else OneLane(work)
