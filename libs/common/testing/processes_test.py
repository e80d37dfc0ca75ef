"""No process stays behind."""

from __future__ import annotations

import signal
import subprocess

import pytest

from libs.common.testing.processes import stop_process


@pytest.mark.parametrize(
    ("trap", "ended_by"), [("TERM", signal.SIGTERM), ("'' TERM", signal.SIGKILL)]
)
def test_process_is_stopped_even_if_it_ignores_the_signal(
    trap: str, ended_by: signal.Signals
) -> None:
    words = f"trap {trap}; echo; read line"
    with subprocess.Popen(
        ["sh", "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()

        stop_process(process, 0.2 if ended_by is signal.SIGKILL else 30)

        assert process.returncode == -ended_by
