"""The lookout: asks the APIs of clusters beside the passes, so that none waits long for a slow one.

Each pass has its cluster asked and gives it a moment, since one pass is better than two. When the
answer comes later, it wakes another pass, which takes it; meanwhile what was told before counts.
Only the first question of a process is waited for to the end of its time: before that nothing is
known, and to say so would change the status of each cluster at each restart.
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
_AT_ONCE: Final = 16
"""Most clusters that are asked at a time."""


@dataclass(slots=True)
class _Entry:
    answer: Workload | None = None
    silent_until: datetime | None = None
    late: bool = False
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
        if entry.task is None and entry.late and entry.answer is not None:
            # Nobody waited for this one any more: it is what this pass was woken for.
            entry.late = False
            return entry.answer
        silent = entry.silent_until is not None and now() < entry.silent_until
        if entry.task is None and not silent:
            entry.task = asyncio.create_task(self._ask(entry, ask, now))
        if entry.task is not None:
            task, known = entry.task, entry.answer is not None
            # A pass that is canceled leaves the question alone: the next one finds the answer.
            await asyncio.wait({task}, timeout=patience if known else None)
            entry.late = not task.done()
            if task.done():
                task.result()
            else:
                task.add_done_callback(lambda _: wake())
        return entry.answer or Workload(asked=True, message="not asked yet")

    def expire(self, uid: str) -> None:
        """Have a cluster asked anew by the next pass, since something was changed there."""
        entry = self._entries.get(uid)
        if entry is not None:
            entry.silent_until, entry.late = None, False

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
            entry.silent_until = None if answer.reachable else now() + self._pause
        finally:
            entry.task = None
