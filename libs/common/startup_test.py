"""Signals that come before the operator is imported end the process, and the log says so."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from libs.common import startup

# By its name: a build that infers dependencies from imports sees none in a text.
_IMPORT = f"import {startup.__name__} as startup"
_SIGNAL_WHILE_IMPORTING = _IMPORT + """
import os, signal, time

def main():
    try:
        os.kill(os.getpid(), signal.{name})
        time.sleep(60)
    except BaseException:
        return 3

startup.run(main)
"""
_MODULES = """
import sys
import libs.common.runtime, libs.common.config, libs.common.testing.widget
import libs.common.runtime.kopf_source
print(sorted(name for name in sys.modules if name.partition(".")[0] == "kubernetes"))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_during_the_imports_ends_the_process_in_order(name: str) -> None:
    ended = run(_SIGNAL_WHILE_IMPORTING.format(name=name))

    assert ended.returncode == 0
    line = json.loads(ended.stderr)
    assert line["event"] == "Stopped before start-up was complete"
    assert line["signal"] == name


def test_status_of_the_work_is_that_of_the_process() -> None:
    assert run(f"{_IMPORT}; startup.run(lambda: 7)").returncode == 7


def test_start_in_a_pod_loads_nothing_of_the_official_client() -> None:
    """It takes 20 MiB and a third of the time of the imports; only a kubeconfig needs it."""
    assert run(_MODULES).stdout.strip() == "[]"
