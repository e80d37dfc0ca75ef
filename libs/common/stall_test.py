"""A blocked event loop is reported while it is blocked, with the code that blocks it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.dev import ConsoleRenderer
from structlog.testing import capture_logs

from libs.common import stall
from libs.common.health import LoopLagMonitor
from libs.common.metrics import Metrics
from libs.common.stall import StallReporter


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured


def block(until: threading.Event) -> None:
    """Block the thread, as a regular expression that takes minutes does."""
    assert until.wait(30)


async def test_blocked_loop_is_reported_with_its_stack(lines: list[Any]) -> None:
    now, reported = [0.0], threading.Event()
    monitor = LoopLagMonitor(Metrics(), clock=lambda: now[0])
    monitor._due = 0.0

    class Watched(StallReporter):
        def check(self) -> None:
            super().check()
            if lines:
                reported.set()

    now[0] = 40.0
    with Watched(monitor.lag_seconds, interval=0.01):
        block(reported)

    (line,) = lines
    assert line["event"].startswith("Event loop is blocked")
    assert line["seconds"] == 40.0
    assert any("stall_test.block" in frame for frame in line["frames"])
    assert "stall_test.block" in ConsoleRenderer()(None, "error", dict(line))


def test_block_is_logged_once_and_its_end_as_well(lines: list[Any]) -> None:
    lag = [0.0]
    reporter = StallReporter(lambda: lag[0])
    for seconds in (0.0, 11.0, 12.0, 0.1, 0.0):
        lag[0] = seconds
        reporter.check()

    assert [line["log_level"] for line in lines] == ["error", "warning"]


_HOLD_THE_LOCK = f"""
import asyncio, re
from {stall.__name__} import StackDump

def match_slowly():
    # 2**24 ways to match, tried by C code in one call.
    re.match("(a+)+$", "a" * 24 + "b")

async def main():
    with StackDump(seconds=0.1, interval=0.02):
        await asyncio.sleep(0.3)
        print("quiet so far", flush=True)
        match_slowly()

asyncio.run(main())
"""


def test_code_that_holds_the_interpreter_lock_is_named() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _HOLD_THE_LOCK],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert ended.stdout == "quiet so far\n"
    assert "Timeout" in ended.stderr
    assert "in match_slowly" in ended.stderr
