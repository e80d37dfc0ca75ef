"""Queries external systems in the background, so that no reconcile waits long for a slow system.

A reconcile starts a query and waits a moment for the response, because one reconcile is better than
two. A later response triggers another reconcile, which takes it. While a query to an address is
running, no other reconcile waits for that address. An address that did not respond is not queried
again for a while, no matter which object asks.

Create one `BackgroundQueries` for each kind of query, and call its `ask` in reconciles.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from libs.common.clock import Clock, SystemClock

PATIENCE: Final = 0.25
"""Seconds that a reconcile waits for a response."""
MAX_CONCURRENT: Final = 16
"""Maximum number of concurrent queries."""


@dataclass(slots=True)
class _Query[A]:
    task: asyncio.Task[A]
    late: bool = False


class _Gate:
    """Limits concurrent queries; the namespace with the fewest running queries is next."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._running: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def enter(self, namespace: str) -> AsyncIterator[None]:
        place = (namespace, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._admit()
        try:
            await place[1]
            yield
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
            else:
                self._free += 1
                self._running -= Counter({namespace: 1})
            self._admit()

    def _admit(self) -> None:
        while self._free and (open_ := [each for each in self._waiting if not each[1].done()]):
            place = min(open_, key=lambda each: self._running[each[0]])
            self._waiting.remove(place)
            self._free -= 1
            self._running[place[0]] += 1
            place[1].set_result(None)


class BackgroundQueries[K: Hashable, A]:
    """Runs queries, one at a time for each key, and keeps each response until a reconcile takes it.

    Args:
        is_silent: Returns whether a response stands for a missing one.
        patience: Seconds that a reconcile waits for a response.
        limit: Maximum number of concurrent queries.
        clock: Time source.
    """

    def __init__(
        self,
        is_silent: Callable[[A], bool],
        *,
        patience: float = PATIENCE,
        limit: int = MAX_CONCURRENT,
        clock: Clock | None = None,
    ) -> None:
        """Start without queries."""
        self._is_silent = is_silent
        self._patience = patience
        self._gate = _Gate(limit)
        self._clock = clock or SystemClock()
        self._queries: dict[K, _Query[A]] = {}
        self._running: set[asyncio.Task[A]] = set()
        self._owing: Counter[Hashable] = Counter()
        self._silent: dict[Hashable, tuple[float, A]] = {}

    def is_pending(self, key: K) -> bool:
        """Return whether a key has a query whose response no reconcile has taken."""
        return key in self._queries

    async def ask(
        self,
        key: K,
        ask: Callable[[], Awaitable[A]],
        *,
        address: Hashable = None,
        namespace: str = "",
        pause: float = 0.0,
        wait: bool = False,
        wake: Callable[[], None],
    ) -> A | None:
        """Return the response to a query, or None while it is running: `wake` is called later.

        Args:
            key: Key of the query. While its last response has not been taken, no new query is
                started.
            ask: Runs the query, with a time-out. Its exceptions are raised here.
            address: Address that is queried; None if each key has its own address.
            namespace: Namespace for which is asked. Slow systems of one delay no other.
            pause: Seconds for which an address that did not respond is not queried again. All
                queries in this time return its last result.
            wait: Whether to wait for the response without a limit.
            wake: Called if the response arrives after the reconcile has stopped waiting.
        """
        where: Hashable = key if address is None else address
        question, patience = self._queries.get(key), 0.0
        if question is None:
            until, silence = self._silent.get(where, (0.0, None))
            if self._clock.monotonic() < until:
                return silence
            patience = 0.0 if where in self._owing else self._patience
            question = self._begin(key, where, self._run(where, namespace, ask, pause))
        # The query continues if the reconcile is cancelled: the next reconcile finds the response.
        await asyncio.wait({question.task}, timeout=None if wait else patience)
        if not question.task.done():
            if not question.late:
                question.late = True
                question.task.add_done_callback(lambda _: wake())
            return None
        if self._queries.get(key) is question:
            del self._queries[key]
        return None if question.task.cancelled() else question.task.result()

    def retry_address(self, address: Hashable) -> None:
        """Allow queries to an address that did not respond."""
        self._silent.pop(address, None)

    def forget(self, key: K) -> None:
        """Forget the query of a key and its response."""
        question = self._queries.pop(key, None)
        if question is not None:
            question.task.cancel()

    async def close(self) -> None:
        """Cancel all queries, and wait until they have ended, including forgotten ones.

        Afterwards the caller may close what the queries use, such as connections.
        """
        tasks = self._running | {question.task for question in self._queries.values()}
        self._queries.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, key: K, where: Hashable, work: Coroutine[Any, Any, A]) -> _Query[A]:
        question = self._queries[key] = _Query(asyncio.create_task(work))
        self._owing[where] += 1
        self._running.add(question.task)
        question.task.add_done_callback(partial(self._settle, where))
        return question

    def _settle(self, where: Hashable, task: asyncio.Task[A]) -> None:
        self._running.discard(task)
        self._owing[where] -= 1
        if not self._owing[where]:
            del self._owing[where]

    async def _run(
        self, where: Hashable, namespace: str, ask: Callable[[], Awaitable[A]], pause: float
    ) -> A:
        async with self._gate.enter(namespace):
            response = await ask()
        if self._is_silent(response):
            now = self._clock.monotonic()
            # Users may name many addresses: expired entries are removed.
            self._silent = {each: held for each, held in self._silent.items() if held[0] > now}
            self._silent[where] = (now + pause, response)
        return response
