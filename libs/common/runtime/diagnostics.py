"""Diagnostics of a running process, by signals: its log level, and a profile.

* SIGUSR1 switches between the configured log level and debug.
* SIGUSR2 samples the threads for some seconds, and logs where they spend their time.

Sending a signal requires permission to execute a command in the pod, and no port is open.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Final

import structlog

from libs.common.logs import configure_logs
from libs.common.settings import CommonSettings

log = structlog.get_logger("diagnostics")

_PROFILE_SECONDS: Final = 10.0
_INTERVAL_SECONDS: Final = 0.01
_SHOWN: Final = 25
"""Number of functions in a profile."""
_DEPTH: Final = 64
_IDLE: Final = frozenset({"select", "wait", "_wait_for_tstate_lock", "accept", "get"})
"""Functions at the top of the stack of a waiting thread."""


class Diagnostics:
    """Handlers of the signals.

    Args:
        settings: Settings of the process.
        profile_seconds: Duration of a profile.
    """

    def __init__(
        self, settings: CommonSettings, *, profile_seconds: float = _PROFILE_SECONDS
    ) -> None:
        """Store the settings; `install` registers the handlers."""
        self._settings = settings
        self._seconds = profile_seconds
        self._is_debug = settings.log_level == "debug"
        self._profile: asyncio.Task[None] | None = None

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle the signals in an event loop."""
        loop.add_signal_handler(signal.SIGUSR1, self.toggle_level)
        loop.add_signal_handler(signal.SIGUSR2, self.start_profile)

    def toggle_level(self) -> None:
        """Switch between the configured log level and debug."""
        self._is_debug = not self._is_debug
        configured = self._settings.log_level
        # If debug is configured, the other level is info.
        level = "debug" if self._is_debug else configured if configured != "debug" else "info"
        configure_logs(level, self._settings.log_format)
        # Logged at a level that is always written, because the line explains why there are more or
        # fewer lines.
        log.error("Changed the log level", log_level=level)

    def start_profile(self) -> None:
        """Start a profile, unless one is running."""
        if self._profile is None or self._profile.done():
            self._profile = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        log.warning("Profiling", seconds=self._seconds)
        me = asyncio.to_thread(sample_threads, self._seconds)
        samples, functions, lines = await me
        log.warning("Profiled", samples=samples, functions=functions, lines=lines)


def sample_threads(
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[int, list[str], list[str]]:
    """Sample the stacks of all other threads.

    Returns:
        The number of samples, the share of samples in which each function was on a stack, and the
        share in which each line was executed.
    """
    functions: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    samples, end, own = 0, clock() + seconds, threading.get_ident()
    while clock() < end:
        samples += 1
        for thread, frame in sys._current_frames().items():  # noqa: SLF001 the documented way
            if thread != own and frame.f_code.co_name not in _IDLE:
                lines[f"{_name(frame)}:{frame.f_lineno}"] += 1
                functions.update(_list_functions(frame))
        sleep(_INTERVAL_SECONDS)
    return samples, _rank(functions, samples), _rank(lines, samples)


def _list_functions(frame: FrameType | None) -> set[str]:
    """Return the functions of a stack; recursive functions count once."""
    found: set[str] = set()
    for _ in range(_DEPTH):
        if frame is None:
            break
        found.add(_name(frame))
        frame = frame.f_back
    return found


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _rank(counts: Counter[str], samples: int) -> list[str]:
    return [f"{100 * count / samples:.0f} % {name}" for name, count in counts.most_common(_SHOWN)]
