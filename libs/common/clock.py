"""Time, passed in: the wall clock for status, a monotonic one for delays.

Everything in the library that waits or compares times takes a `Clock`, so that tests of delays
move time by hand (`libs.common.testing.clock.FakeClock`) and never sleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Timer(Protocol):
    """Stand for a call that is still to come."""

    def cancel(self) -> None:
        """Make the call not happen; does nothing once it has."""


class Clock(Protocol):
    """Tell the time and wait."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from an arbitrary start."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back in the running loop after some seconds."""


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
        """Call back in the running loop after some seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)
