"""Where messages are handled: one at a time, or several in lanes that keep the order of a key."""

from __future__ import annotations

import queue
import threading
import time
import zlib
from collections.abc import Callable
from typing import Protocol

type Work = Callable[[], object]
"""Handles and settles what was received; it raises nothing."""


class Lanes(Protocol):
    """Run work, as many pieces at a time as there are lanes."""

    def submit(self, key: str, work: Work) -> None:
        """Run work, or wait for a lane that will; work of one key stays in order."""

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing runs, and tell whether it came to that in time."""


class OneLane:
    """Run one piece of work at a time, in the thread that brings it."""

    def __init__(self) -> None:
        """Start idle."""
        self._turn = threading.Lock()

    def submit(self, key: str, work: Work) -> None:
        """Run work once the other source's has ended."""
        with self._turn:
            work()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing runs, and tell whether it came to that in time."""
        idle = self._turn.acquire(timeout=max(0.0, seconds))
        if idle:
            self._turn.release()
        return idle


class ManyLanes:
    """Run several pieces of work at a time, each in a thread of its own."""

    def __init__(self, count: int, *, ordered: bool) -> None:
        """Start the threads, which live as long as the process.

        Args:
            count: How many lanes.
            ordered: Whether work of one key goes to one lane, or to whichever is free.
        """
        self._count = count
        self._free = threading.Semaphore(count)
        queues = count if ordered else 1
        self._queues: list[queue.SimpleQueue[Work]] = [queue.SimpleQueue() for _ in range(queues)]
        for number in range(count):
            lane = self._queues[number % queues]
            name = f"lane-{number}"
            threading.Thread(target=self._run, args=(lane,), name=name, daemon=True).start()

    def submit(self, key: str, work: Work) -> None:
        """Hand work to a lane, once fewer are under way than there are lanes."""
        self._free.acquire()
        self._queues[zlib.crc32(key.encode()) % len(self._queues)].put(work)

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

    def _run(self, lane: queue.SimpleQueue[Work]) -> None:
        while True:
            work = lane.get()
            try:
                work()
            finally:
                self._free.release()


def build_lanes(count: int, *, ordered: bool) -> Lanes:
    """Return as many lanes as asked for."""
    return ManyLanes(count, ordered=ordered) if count > 1 else OneLane()
