"""Reports an event loop that is blocked, from a thread of its own.

A blocked loop answers no probe and handles no signal, so the kubelet kills the process in the end,
and nothing in the log would say why. C code that holds the interpreter lock blocks the thread as
well; then the watchdog of faulthandler, which needs no lock, writes the stacks to stderr.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, Self

import structlog

log = structlog.get_logger("process")

_LIMIT_SECONDS: Final = 10.0
_INTERVAL_SECONDS: Final = 2.0
_STDERR: Final = 2
_DUMP_SECONDS: Final = 20.0
"""Before the liveness probe of the charts has failed three times."""
_ARM_SECONDS: Final = 5.0
_FRAMES: Final = 8
"""Number of calls that the log shows, the innermost first."""


class StallReporter:
    """Logs that the loop is blocked, and the code that it executes.

    Use it as a context manager in the thread of the loop.

    Args:
        lag: Returns for how many seconds a timer of the loop is overdue.
        limit: Seconds after which the loop counts as blocked.
        interval: Seconds between two checks.
    """

    def __init__(
        self,
        lag: Callable[[], float],
        *,
        limit: float = _LIMIT_SECONDS,
        interval: float = _INTERVAL_SECONDS,
    ) -> None:
        """Store the arguments; the thread starts with the context."""
        self._lag = lag
        self._limit = limit
        self._interval = interval
        self._loop_thread = 0
        self._blocked = False
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        """Start the thread."""
        self._loop_thread = threading.get_ident()
        threading.Thread(target=self._run, name="stall-reporter", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread."""
        self._stopped.set()

    def check(self) -> None:
        """Log a block when it begins and when it is over."""
        seconds = self._lag()
        if seconds > self._limit and not self._blocked:
            frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 the documented way
            log.error(
                "Event loop is blocked: probes fail and signals are not handled, so the kubelet"
                " kills the process if this continues",
                seconds=round(seconds, 1),
                frames=_describe(frame),
            )
        elif seconds <= self._limit and self._blocked:
            log.warning("Event loop runs again")
        self._blocked = seconds > self._limit

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self.check()


class StackDump:
    """A dump of all stacks to stderr if the loop runs no timer for some seconds.

    There is one per process, so only the main function of an operator uses it.

    Args:
        seconds: Seconds without a timer after which the stacks are written.
        interval: Seconds between two timers.
    """

    def __init__(self, seconds: float = _DUMP_SECONDS, interval: float = _ARM_SECONDS) -> None:
        """Store the arguments; the context arms the dump."""
        self._seconds = seconds
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        """Arm the dump, and keep postponing it."""
        self._postpone(asyncio.get_running_loop())
        return self

    def __exit__(self, *_: object) -> None:
        """Disarm the dump."""
        faulthandler.cancel_dump_traceback_later()
        if self._timer is not None:
            self._timer.cancel()

    def _postpone(self, loop: asyncio.AbstractEventLoop) -> None:
        faulthandler.dump_traceback_later(self._seconds, file=_STDERR)
        self._timer = loop.call_later(self._interval, self._postpone, loop)


def _describe(frame: FrameType | None) -> list[str]:
    lines: list[str] = []
    while frame is not None and len(lines) < _FRAMES:
        module = frame.f_globals.get("__name__", "?")
        lines.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return lines
