"""Waiting for conditions in tests, without sleeps of a guessed length."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from libs.common.testing.clock import FakeClock

_POLL: Final = 0.002
_TURNS: Final = 20


async def until(
    probe: Callable[[], object], what: str = "the condition holds", seconds: float = 120.0
) -> None:
    """Wait until a probe returns something true.

    Raises:
        AssertionError: It did not within some seconds.
    """
    try:
        async with asyncio.timeout(seconds):
            while not probe():
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise AssertionError(f"Gave up after {seconds} s waiting until {what}") from None


async def turns(number: int = _TURNS) -> None:
    """Let everything that is ready in the loop run, before the absence of something is claimed."""
    for _ in range(number):
        await asyncio.sleep(0)


async def advance_until(
    clock: FakeClock, probe: Callable[[], object], what: str = "the condition holds"
) -> float:
    """Ring one alarm of a clock after the other until a probe returns something true.

    Returns:
        Seconds by which the clock was moved.
    """
    began = clock.monotonic()
    await turns()

    def ring() -> bool:
        if probe():
            return True
        due = clock.next_due()
        if due is not None:
            clock.advance(due)
        return False

    await until(ring, what)
    return clock.monotonic() - began
