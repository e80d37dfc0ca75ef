"""Queries the APIs of clusters in the background, and caches the responses.

Each reconcile has its cluster asked. If a cluster is slow, its previous answer counts. Two answers
are waited for until their time is over:

* the first one of a process. Before it nothing is known, and a status that says so would change at
  each restart of the operator;
* the first one after a change. The response from before the change would ask for the same change
  again, and each repetition would cancel the question that shows that it is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.background import BackgroundQueries
from libs.common.clock import Clock
from operators.clusters.observed import Workload

type Ask = Callable[[], Awaitable[Workload]]
"""Asks a cluster. It is bounded in time, and reports failures in its result."""


class WorkloadCache:
    """The latest answer of each cluster, by UID.

    Args:
        pause: Seconds for which a cluster that did not answer is not asked again.
        clock: Tells the time.
    """

    def __init__(self, pause: float, clock: Clock | None = None) -> None:
        """Start without any response."""
        self._pause = pause
        self._questions = BackgroundQueries[str, Workload](
            lambda answers: not answers.reachable, clock=clock
        )
        self._workloads: dict[str, Workload] = {}
        self._expired: set[str] = set()

    async def look(self, uid: str, ask: Ask, wake: Callable[[], None]) -> Workload:
        """Return what a cluster answers, or its previous answer if it is slow.

        Args:
            uid: Which cluster.
            ask: Asks it.
            wake: Called when a response arrives for which nobody waits any more.
        """
        wait = uid not in self._workloads or uid in self._expired
        answers = await self._questions.ask(uid, ask, pause=self._pause, wait=wait, wake=wake)
        if answers is not None:
            self._workloads[uid] = answers
            self._expired.discard(uid)
        return self._workloads.get(uid) or Workload(asked=True, message="not checked yet")

    def expire(self, uid: str) -> None:
        """Have the next reconcile ask a cluster again, because something was changed there."""
        self._questions.forget(uid)
        self._questions.retry_address(uid)
        self._expired.add(uid)

    def forget(self, uid: str) -> None:
        """Forget a cluster and the question that is open."""
        self.expire(uid)
        self._workloads.pop(uid, None)
        self._expired.discard(uid)

    async def close(self) -> None:
        """Cancel the open questions."""
        await self._questions.close()
