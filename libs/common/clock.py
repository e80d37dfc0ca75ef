"""Clocks that are passed as arguments: wall-clock time for statuses, monotonic time for delays.

Everything in the library that waits or compares times takes a `Clock`, so that tests advance the
time themselves (`libs.common.testing.clock.FakeClock`) and never sleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; has no effect after the call."""


class Clock(Protocol):
    """A source of time that can wait."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; they never decrease."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call a function in the running loop after some seconds."""


class SystemClock:
    """The clocks of this machine and of the running event loop."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait in the running loop."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call a function in the running loop after some seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)
