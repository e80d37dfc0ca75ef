"""The lookout: asks the APIs of clusters beside the passes, and keeps what they told.

Each pass has its cluster asked. While a cluster is slow, what it told before counts. Only the first
question of a process is waited for to the end of its time: before that nothing is known, and to say
so would change the status of each cluster at each restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.clock import Clock
from libs.common.outside import Outside
from operators.clusters.observed import Workload

type Ask = Callable[[], Awaitable[Workload]]
"""Asks a cluster; bounded in time, and never raises for what is wrong out there."""


class Lookout:
    """Keep what clusters told, by UID.

    Args:
        pause: Seconds for which a cluster is left alone that gave no answer.
        clock: Tells the time.
    """

    def __init__(self, pause: float, clock: Clock | None = None) -> None:
        """Begin knowing nothing."""
        self._pause = pause
        self._questions = Outside[str, Workload](lambda told: not told.reachable, clock=clock)
        self._told: dict[str, Workload] = {}

    async def look(self, uid: str, ask: Ask, wake: Callable[[], None]) -> Workload:
        """Return what a cluster tells, or told when it is slow.

        Args:
            uid: Which cluster.
            ask: Asks it.
            wake: Called when an answer comes for which nobody waits any more.
        """
        told = await self._questions.ask(
            uid, ask, pause=self._pause, wait=uid not in self._told, wake=wake
        )
        if told is not None:
            self._told[uid] = told
        return self._told.get(uid) or Workload(asked=True, message="not asked yet")

    def expire(self, uid: str) -> None:
        """Have a cluster asked anew by the next pass, since something was changed there."""
        self._questions.forget(uid)
        self._questions.hear(uid)

    def forget(self, uid: str) -> None:
        """Forget a cluster, and what is asked of it."""
        self.expire(uid)
        self._told.pop(uid, None)

    async def close(self) -> None:
        """End what is under way."""
        await self._questions.close()
