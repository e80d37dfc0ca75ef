"""Clocks that tests move by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from libs.common.clock import SystemClock


@dataclass(order=True, slots=True)
class _Alarm:
    due: float
    order: int
    callback: Callable[[], None] = field(compare=False)
    canceled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.canceled = True


class FakeClock:
    """A clock that moves only by `advance`.

    Args:
        start: Wall-clock time to begin with.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        """Begin at `start`, with the monotonic clock at 0."""
        self._start = start
        self._elapsed = 0.0
        self._alarms: list[_Alarm] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        """Return the wall-clock time."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds that were advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        alarm = self.call_later(seconds, lambda: _settle(waiter))
        try:
            await waiter
        finally:
            alarm.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Alarm:
        """Call back once the clock was advanced that far."""
        alarm = _Alarm(self._elapsed + seconds, next(self._order), callback)
        heapq.heappush(self._alarms, alarm)
        return alarm

    def advance(self, seconds: float) -> None:
        """Move time forward, ringing what falls due in its order."""
        until = self._elapsed + seconds
        while self._alarms and self._alarms[0].due <= until:
            alarm = heapq.heappop(self._alarms)
            self._elapsed = max(self._elapsed, alarm.due)
            if not alarm.canceled:
                alarm.callback()
        self._elapsed = until

    def next_due(self) -> float | None:
        """Return the seconds until the next alarm, or None when nothing waits."""
        pending = [alarm.due for alarm in self._alarms if not alarm.canceled]
        return max(0.0, min(pending) - self._elapsed) if pending else None


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class AdvancedClock(SystemClock):
    """A wall clock that tests may move ahead; delays take their real time.

    Attributes:
        seconds: How far it is ahead.
    """

    def __init__(self) -> None:
        """Begin with the time of now."""
        self.seconds = 0.0

    def now(self) -> datetime:
        """Return the wall-clock time in UTC, so much later."""
        return super().now() + timedelta(seconds=self.seconds)
