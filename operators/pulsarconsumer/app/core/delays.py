"""Messages that wait for their time, in memory."""

from __future__ import annotations

import heapq
import itertools
import threading


class Delays[T]:
    """Hold items until they are due; threads may share it."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, T]] = []

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._heap)

    def add(self, due: float, item: T) -> None:
        """Hold an item until a time."""
        with self._lock:
            heapq.heappush(self._heap, (due, next(self._numbers), item))

    def pop_due(self, now: float) -> list[T]:
        """Take out what is due, in the order of its times."""
        items: list[T] = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                items.append(heapq.heappop(self._heap)[2])
        return items
