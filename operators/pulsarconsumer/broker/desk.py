"""The desk: asks brokers in the background, so that no pass ever waits long for one.

A pass looks at what is known and goes on. An address that answers in time is given a moment, since
one pass is better than two; while it owes an answer it is given none, and when there was none at
all it is left alone for a while, however many PulsarConsumers name it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from libs.common.clock import Clock, SystemClock
from libs.common.kinds import Key
from operators.pulsarconsumer.api.v1 import Reason
from operators.pulsarconsumer.report import UNASKED, Report, Survey, Trouble

log = structlog.get_logger(__name__)

type Ask = Callable[[], Awaitable[Report]]
"""Ask the broker; raise what `judge` understands."""
type Act = Callable[[], Awaitable[None]]
"""Change something at the broker; safe to repeat."""
type Judge = Callable[[Exception], Trouble]
"""Tell what an error means to people."""
type Told = Callable[[Trouble | None, float], None]
"""Take note of a look that ended, and of the seconds that it took."""

_SILENCE: Final = 10.0
"""Seconds for which an address that gave no answer is left alone, at most."""
_LATE: Final = 1.0
"""Seconds after which a pass comes back for an answer, should nobody wake it."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known, and when to look again.

    Attributes:
        survey: What is known.
        serial: Number of the look that it comes from; the next one has a higher one.
        again: Seconds until the next look is due.
    """

    survey: Survey
    serial: int
    again: float


@dataclass(frozen=True, slots=True)
class Effect:
    """What became of a change at the broker.

    Attributes:
        done: Whether it was made.
        trouble: Why it failed; None while it is under way.
    """

    done: bool = False
    trouble: Trouble | None = None


@dataclass(slots=True)
class _Entry:
    fingerprint: str
    survey: Survey = UNASKED
    serial: int = 0
    due: float = 0.0
    task: asyncio.Task[None] | None = None
    effects: dict[str, asyncio.Task[Trouble | None]] = field(default_factory=dict)


class Desk:
    """Keep what brokers told, one entry a PulsarConsumer.

    Args:
        judge: Tells what an error means.
        patience: Seconds that a pass waits for an answer.
        timeout: Seconds that all requests of a look may take together.
        limit: Looks at a time.
        told: Takes note of each look.
        clock: Tells the time.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        patience: float = 0.25,
        timeout: float = 15.0,
        limit: int = 16,
        told: Told = lambda _trouble, _seconds: None,
        clock: Clock | None = None,
    ) -> None:
        """Begin knowing nothing."""
        self._judge = judge
        self._patience = patience
        self._timeout = timeout
        self._gate = asyncio.Semaphore(limit)
        self._told = told
        self._clock = clock or SystemClock()
        self._entries: dict[Key, _Entry] = {}
        self._slow: set[str] = set()
        self._silent: dict[str, tuple[float, Trouble]] = {}

    async def look(
        self,
        key: Key,
        fingerprint: str,
        address: str,
        ask: Ask,
        *,
        period: float,
        wake: Callable[[], None],
    ) -> Look:
        """Return what is known, and have it asked anew when it is due.

        Args:
            key: Whom it is for.
            fingerprint: Changes with the question; what was told to another is forgotten.
            address: Where it is asked.
            ask: Asks.
            period: Seconds between two looks.
            wake: Called when an answer comes for which nobody waits any more.
        """
        entry = self._entries.get(key)
        if entry is None or entry.fingerprint != fingerprint:
            self.forget(key)
            entry = self._entries[key] = _Entry(fingerprint)
        now = self._clock.monotonic()
        if entry.task is None and now >= entry.due:
            entry.due = now + period
            silent = self._find_silence(address)
            if silent is not None:
                self._note(entry, silent)
            else:
                entry.task = asyncio.create_task(self._take(entry, address, ask, period))
                await self._wait_for(address, entry.task, wake)
        again = _LATE if entry.task is not None else max(0.01, entry.due - self._clock.monotonic())
        return Look(entry.survey, entry.serial, again)

    async def act(self, key: Key, name: str, act: Act, wake: Callable[[], None]) -> Effect:
        """Have something changed at the broker, once; a failure is tried again at the next call.

        Args:
            key: Whom it is for.
            name: What is done; the same name is not done twice at a time.
            act: Does it.
            wake: Called when it ends while nobody waits.
        """
        entry = self._entries.setdefault(key, _Entry(""))
        task = entry.effects.get(name)
        if task is None:
            task = entry.effects[name] = asyncio.create_task(self._attempt(act))
        await self._wait(task, wake, patience=self._patience)
        if not task.done():
            return Effect()
        trouble = task.result()
        if trouble is None:
            # What is known is old news now.
            entry.due = 0.0
            return Effect(done=True)
        del entry.effects[name]
        return Effect(trouble=trouble)

    def forget(self, key: Key) -> None:
        """Forget a PulsarConsumer, and what is under way for it."""
        entry = self._entries.pop(key, None)
        if entry is not None and entry.task is not None:
            entry.task.cancel()

    def keys(self) -> list[Key]:
        """Return whom something is known of."""
        return list(self._entries)

    async def close(self) -> None:
        """End what is under way."""
        for key in self.keys():
            self.forget(key)

    async def _wait_for(
        self, address: str, task: asyncio.Task[None], wake: Callable[[], None]
    ) -> None:
        """Wait a moment for an address that is quick, or was never asked."""
        patience = self._patience if address not in self._slow else 0.0
        # Until it answers in time, nobody else waits for it.
        self._slow.add(address)
        await self._wait(task, wake, patience=patience)
        if task.done():
            self._slow.discard(address)
        else:
            task.add_done_callback(lambda _: self._slow.discard(address))

    async def _wait(
        self, task: asyncio.Task[object], wake: Callable[[], None], *, patience: float
    ) -> None:
        # A pass that is canceled leaves the look alone: the next pass finds its answer.
        await asyncio.wait({task}, timeout=patience)
        if not task.done():
            task.add_done_callback(lambda _: wake())

    async def _take(self, entry: _Entry, address: str, ask: Ask, period: float) -> None:
        try:
            async with self._gate:
                began = self._clock.monotonic()
                report: Report | None = None
                trouble: Trouble | None = None
                try:
                    async with asyncio.timeout(self._timeout):
                        report = await ask()
                except Exception as err:  # noqa: BLE001 nobody else is there to see it
                    trouble = self._judge(err)
                self._told(trouble, self._clock.monotonic() - began)
        finally:
            entry.task = None
        if trouble is not None and trouble.reason is Reason.UNREACHABLE:
            until = self._clock.monotonic() + min(_SILENCE, period / 2)
            self._silent[address] = (until, trouble)
        self._note(entry, report if trouble is None and report is not None else trouble)

    def _note(self, entry: _Entry, answer: Report | Trouble | None) -> None:
        entry.serial += 1
        if isinstance(answer, Report):
            entry.survey = Survey(answer)
        elif answer is not None:
            survey = entry.survey
            entry.survey = Survey(survey.report, answer, survey.failures + 1)

    def _find_silence(self, address: str) -> Trouble | None:
        until, trouble = self._silent.get(address, (0.0, None))
        if self._clock.monotonic() < until:
            return trouble
        self._silent.pop(address, None)
        return None

    async def _attempt(self, act: Act) -> Trouble | None:
        try:
            async with self._gate, asyncio.timeout(self._timeout):
                await act()
        except Exception as err:  # noqa: BLE001 nobody else is there to see it
            return self._judge(err)
        return None
