"""Polls brokers in the background, each when it is due, and caches the results.

A reconcile reads the cached result and continues. If a broker returns a temporary error, the last
result stays, and the error is reported if the next query, a second later, fails as well. If an
address does not respond at all, all PulsarConsumers that name it get this result, and it is not
queried for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from libs.common.background import MAX_CONCURRENT, PATIENCE, BackgroundQueries
from libs.common.clock import Clock, SystemClock
from libs.common.kinds import Key
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.report import NOT_QUERIED, BrokerProblem, BrokerState, Report

type Ask = Callable[[], Awaitable[Report]]
"""Queries the broker; raises errors that `evaluate` classifies."""
type Act = Callable[[], Awaitable[None]]
"""Changes the state of the broker; safe to repeat."""
type Classify = Callable[[Exception], BrokerProblem]
"""Returns the problem that an error means for users."""
type OnResult = Callable[[BrokerProblem | None, float], None]
"""Called with the problem, if any, and the duration of each finished query."""

_SILENCE: Final = 10.0
"""Maximum seconds for which an address without response is not queried."""
_LATE: Final = 1.0
"""Seconds until the next reconcile for a pending response, if nothing wakes it earlier."""


@dataclass(frozen=True, slots=True)
class CachedState:
    """The known state of a broker, and the time of the next query.

    Attributes:
        serial: Number of the query that returned the state; later queries have higher numbers.
        again: Seconds until the next query is due.
    """

    broker_state: BrokerState
    serial: int
    again: float


@dataclass(frozen=True, slots=True)
class Effect:
    """The result of a change at the broker.

    Attributes:
        problem: Why it failed; None while it is in progress.
    """

    done: bool = False
    problem: BrokerProblem | None = None


@dataclass(slots=True)
class _Entry:
    fingerprint: str
    broker_state: BrokerState = NOT_QUERIED
    serial: int = 0
    due: float = 0.0
    failing: bool = False
    effects: dict[str, Effect] = field(default_factory=dict)

    def is_inconclusive(self, problem: BrokerProblem) -> bool:
        """Return whether a problem must be confirmed by another query before it is reported.

        A broker refuses single requests while a topic moves or is created.
        """
        return problem.ours or (problem.passing and not self.failing)


class BrokerCache:
    """A cache of the results of broker queries, one entry per PulsarConsumer.

    Args:
        evaluate: Classifies an error.
        patience: Seconds that a reconcile waits for a response.
        timeout: Seconds that all requests of a query may take together.
        limit: Number of concurrent queries.
        on_result: Called after each query.
        clock: Time source.
    """

    def __init__(
        self,
        evaluate: Classify,
        *,
        patience: float = PATIENCE,
        timeout: float = 15.0,
        limit: int = MAX_CONCURRENT,
        on_result: OnResult = lambda _problem, _seconds: None,
        clock: Clock | None = None,
    ) -> None:
        """Start empty."""
        self._evaluate = evaluate
        self._timeout = timeout
        self._on_result = on_result
        self._clock = clock or SystemClock()
        self._looks = BackgroundQueries[Key, Report | BrokerProblem](
            _is_unreachable, patience=patience, limit=limit, clock=self._clock
        )
        self._acts = BackgroundQueries[tuple[Key, str], Effect](lambda _: False, patience=patience)
        self._entries: dict[Key, _Entry] = {}

    async def look(
        self,
        key: Key,
        fingerprint: str,
        address: str,
        ask: Ask,
        *,
        period: float,
        wake: Callable[[], None],
    ) -> CachedState:
        """Return the known state, and query the broker in the background when a query is due.

        Args:
            key: Key of the PulsarConsumer.
            fingerprint: Changes with the query; results of an earlier query are dropped.
            address: Address that is queried.
            ask: Queries the broker.
            period: Seconds between two queries.
            wake: Called when a response arrives for which no reconcile waits any more.
        """
        entry = self._entries.get(key)
        if entry is None or entry.fingerprint != fingerprint:
            self.forget(key)
            entry = self._entries[key] = _Entry(fingerprint)
        if not self._looks.is_pending(key):
            now = self._clock.monotonic()
            if now < entry.due:
                return CachedState(entry.broker_state, entry.serial, max(0.01, entry.due - now))
            entry.due = now + period
        response = await self._looks.ask(
            key,
            lambda: self._take(ask),
            address=address,
            namespace=key.namespace,
            pause=min(_SILENCE, period / 2),
            wake=wake,
        )
        if response is None:
            return CachedState(entry.broker_state, entry.serial, _LATE)
        if isinstance(response, BrokerProblem) and entry.is_inconclusive(response):
            entry.due = self._clock.monotonic() + _LATE
        else:
            _note(entry, response)
        # A problem of ours says nothing about the broker.
        if not isinstance(response, BrokerProblem) or not response.ours:
            entry.failing = isinstance(response, BrokerProblem)
        again = max(0.01, entry.due - self._clock.monotonic())
        return CachedState(entry.broker_state, entry.serial, again)

    async def act(self, key: Key, name: str, act: Act, wake: Callable[[], None]) -> Effect:
        """Change something at the broker, once; a failure is retried at the next call.

        Args:
            key: Key of the PulsarConsumer.
            name: Name of the change; changes with the same name never run concurrently.
            act: Performs the change.
            wake: Called when the change ends while no reconcile waits.
        """
        entry = self._entries.setdefault(key, _Entry(""))
        held = entry.effects.setdefault(name, Effect())
        if held.done:
            return held
        effect = await self._acts.ask(
            (key, name), lambda: self._attempt(act), namespace=key.namespace, wake=wake
        )
        if effect is None:
            return held
        entry.effects[name] = effect
        if effect.done:
            # The cached state predates the change.
            entry.due = 0.0
        return effect

    def is_done(self, key: Key, name: str) -> bool:
        """Return whether a change succeeded."""
        entry = self._entries.get(key)
        return entry is not None and entry.effects.get(name, Effect()).done

    def drop(self, key: Key, name: str) -> None:
        """Forget that a change was made, because it is requested again."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.effects.pop(name, None)

    def forget(self, key: Key) -> None:
        """Forget a PulsarConsumer, and cancel its queries and changes."""
        self._looks.forget(key)
        entry = self._entries.pop(key, None)
        for name in entry.effects if entry is not None else ():
            self._acts.forget((key, name))

    def is_failing(self, key: Key) -> bool:
        """Return whether the last query that reached the broker failed."""
        entry = self._entries.get(key)
        return entry is not None and entry.failing

    def last_report(self, key: Key) -> Report | None:
        """Return the last report of a broker; None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry.broker_state.report

    def keys(self) -> list[Key]:
        """Return the keys of all cached PulsarConsumers."""
        return list(self._entries)

    async def close(self) -> None:
        """Cancel all queries and changes."""
        await self._looks.close()
        await self._acts.close()

    async def _take(self, ask: Ask) -> Report | BrokerProblem:
        began = self._clock.monotonic()
        response: Report | BrokerProblem
        problem: BrokerProblem | None = None
        try:
            async with asyncio.timeout(self._timeout):
                response = await ask()
        except Exception as err:  # noqa: BLE001 nobody awaits this task
            response = problem = self._evaluate(err)
        self._on_result(problem, self._clock.monotonic() - began)
        return response

    async def _attempt(self, act: Act) -> Effect:
        try:
            async with asyncio.timeout(self._timeout):
                await act()
        except Exception as err:  # noqa: BLE001 nobody awaits this task
            return Effect(problem=self._evaluate(err))
        return Effect(done=True)


def _is_unreachable(response: Report | BrokerProblem) -> bool:
    return isinstance(response, BrokerProblem) and response.reason is Reason.UNREACHABLE


def _note(entry: _Entry, response: Report | BrokerProblem) -> None:
    entry.serial += 1
    if isinstance(response, Report):
        entry.broker_state = BrokerState(response)
    else:
        entry.broker_state = BrokerState(
            entry.broker_state.report, response, entry.broker_state.failures + 1
        )
