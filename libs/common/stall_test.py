"""A blocked event loop is reported while it is blocked, with the code that blocks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

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
    assert any("stall_test.block" in frame for frame in line["stack"])


def test_block_is_logged_once_and_its_end_as_well(lines: list[Any]) -> None:
    lag = [0.0]
    reporter = StallReporter(lambda: lag[0])
    for seconds in (0.0, 11.0, 12.0, 0.1, 0.0):
        lag[0] = seconds
        reporter.check()

    assert [line["log_level"] for line in lines] == ["error", "warning"]
