"""Queries the APIs of clusters in the background, and caches the responses.

Each reconcile starts a query of its cluster. If the cluster is slow, the reconcile uses the
previous response. A reconcile waits for a response until its time-out only in two cases:

* the first response in a process. Without it nothing is known, and the status would change at each
  restart of the operator;
* the first response after a change. The response from before the change would make the plan repeat
  the change, and each repetition would cancel the query that shows that the change is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.background import BackgroundQueries
from libs.common.clock import Clock
from operators.clusters.observed import Workload

type Ask = Callable[[], Awaitable[Workload]]
"""Queries a cluster, with a time-out; failures are reported in the result."""


class WorkloadCache:
    """The latest response of each cluster, by UID.

    Args:
        pause: Seconds for which a cluster that did not respond is not queried again.
        clock: Time source.
    """

    def __init__(self, pause: float, clock: Clock | None = None) -> None:
        """Start without responses."""
        self._pause = pause
        self._queries = BackgroundQueries[str, Workload](
            lambda answers: not answers.reachable, clock=clock
        )
        self._workloads: dict[str, Workload] = {}
        self._expired: set[str] = set()

    async def look(
        self, uid: str, ask: Ask, wake: Callable[[], None], *, namespace: str
    ) -> Workload:
        """Return the response of a cluster, or its previous response if the cluster is slow.

        Args:
            uid: UID of the cluster.
            ask: Queries the cluster.
            wake: Called when a response arrives for which no reconcile waits any more.
            namespace: Namespace of the cluster.
        """
        wait = uid not in self._workloads or uid in self._expired
        answers = await self._queries.ask(
            uid, ask, namespace=namespace, pause=self._pause, wait=wait, wake=wake
        )
        if answers is not None:
            self._workloads[uid] = answers
            self._expired.discard(uid)
        return self._workloads.get(uid) or Workload(asked=True, message="not checked yet")

    def expire(self, uid: str) -> None:
        """Make the next reconcile query a cluster again, because something changed there."""
        self._queries.forget(uid)
        self._queries.retry_address(uid)
        self._expired.add(uid)

    def forget(self, uid: str) -> None:
        """Forget a cluster and cancel its open query."""
        self.expire(uid)
        self._workloads.pop(uid, None)
        self._expired.discard(uid)

    async def close(self) -> None:
        """Cancel the open queries."""
        await self._queries.close()
