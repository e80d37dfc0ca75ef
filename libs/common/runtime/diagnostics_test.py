"""Log level and profile of a running process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator

import pytest
import structlog

from libs.common.logs import configure_logs
from libs.common.runtime.diagnostics import Diagnostics, sample_threads
from libs.common.settings import CommonSettings

log = structlog.get_logger("test")


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    configure_logs("info", "json")
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


async def wait_for(event: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    async with asyncio.timeout(60):
        while True:
            for line in lines(capsys):
                if line["msg"] == event:
                    return line
            await asyncio.sleep(0.01)


async def test_signal_switches_debug_on_and_off(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("warning", "json")
    Diagnostics(CommonSettings(log_level="warning")).install(asyncio.get_running_loop())

    os.kill(os.getpid(), signal.SIGUSR1)
    changed = await wait_for("Changed the log level", capsys)
    log.debug("detail")
    assert [line["msg"] for line in lines(capsys)] == ["detail"]
    assert changed["log_level"] == "debug"

    os.kill(os.getpid(), signal.SIGUSR1)
    changed = await wait_for("Changed the log level", capsys)
    log.info("detail")
    assert lines(capsys) == []
    assert changed["log_level"] == "warning"


async def test_signal_logs_where_the_time_goes(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    diagnostics = Diagnostics(CommonSettings(), profile_seconds=0.2)
    diagnostics.install(asyncio.get_running_loop())
    ended = threading.Event()

    def work_hard() -> None:
        while not ended.is_set():
            sum(range(100))

    worker = threading.Thread(target=work_hard)
    worker.start()
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        profile = await wait_for("Profiled", capsys)
    finally:
        ended.set()
        worker.join()

    assert "work_hard" in str(profile["functions"])
    assert "diagnostics_test" in str(profile["lines"])


def test_profile_counts_a_recursive_function_once_a_sample() -> None:
    ready, ended = threading.Event(), threading.Event()

    def descend(depth: int) -> None:
        if depth:
            return descend(depth - 1)
        ready.set()
        while not ended.is_set():
            pass
        return None

    worker = threading.Thread(target=descend, args=(5,))
    worker.start()
    ready.wait(60)
    times = iter(range(100))
    try:
        samples, functions, _ = sample_threads(10, clock=lambda: next(times), sleep=lambda _: None)
    finally:
        ended.set()
        worker.join()

    assert samples == 9
    (own,) = [each for each in functions if each.endswith(".descend")]
    assert own.startswith("100 % ")
