"""The lookout: asks the APIs of clusters beside the passes, so that none waits long for a slow one.

What was told is kept. A pass that finds it old has it asked anew and gives the cluster a moment,
since one pass is better than two; when the answer comes later, it wakes another pass. Only the
first question of a process is waited for to the end of its time: before that nothing is known, and
to say so would change the status of each cluster at each restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from operators.clusters.observed import Workload

type Ask = Callable[[], Awaitable[Workload]]
"""Asks a cluster; bounded in time, and never raises for what is wrong out there."""

_PATIENCE: Final = 0.25
"""Seconds that a pass gives a cluster of which something is known."""
_FRESH: Final = timedelta(seconds=1)
"""How long an answer is taken for what is there now."""
_AT_ONCE: Final = 16
"""Most clusters that are asked at a time."""


@dataclass(slots=True)
class _Entry:
    answer: Workload | None = None
    until: datetime | None = None
    task: asyncio.Task[None] | None = None


class Lookout:
    """Keep what clusters told, by UID.

    Args:
        pause: For how long a cluster is left alone that gave no answer.
    """

    def __init__(self, pause: timedelta) -> None:
        """Begin knowing nothing."""
        self._pause = pause
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._entries: dict[str, _Entry] = {}

    async def look(
        self, uid: str, ask: Ask, *, now: Callable[[], datetime], wake: Callable[[], None]
    ) -> Workload:
        """Return what a cluster tells, or told when it is slow.

        Args:
            uid: Which cluster.
            ask: Asks it.
            now: Tells the time.
            wake: Called when an answer comes for which nobody waits any more.
        """
        entry = self._entries.setdefault(uid, _Entry())
        patience = 0.0 if entry.task is not None else _PATIENCE
        if entry.task is None and (entry.until is None or now() >= entry.until):
            entry.task = asyncio.create_task(self._ask(entry, ask, now))
        if entry.task is not None:
            task, known = entry.task, entry.answer is not None
            # A pass that is canceled leaves the question alone: the next one finds the answer.
            await asyncio.wait({task}, timeout=patience if known else None)
            if task.done():
                task.result()
            else:
                task.add_done_callback(lambda _: wake())
        return entry.answer or Workload(asked=True, message="not asked yet")

    def expire(self, uid: str) -> None:
        """Have a cluster asked anew by the next pass, since something was changed there."""
        entry = self._entries.get(uid)
        if entry is not None:
            entry.until = None

    def forget(self, uid: str) -> None:
        """Forget a cluster, and what is asked of it."""
        entry = self._entries.pop(uid, None)
        if entry is not None and entry.task is not None:
            entry.task.cancel()

    async def _ask(self, entry: _Entry, ask: Ask, now: Callable[[], datetime]) -> None:
        try:
            async with self._gate:
                answer = await ask()
            entry.answer = answer
            entry.until = now() + (_FRESH if answer.reachable else self._pause)
        finally:
            entry.task = None
