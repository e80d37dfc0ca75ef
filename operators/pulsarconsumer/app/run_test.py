"""How the process ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Coroutine
from typing import Final

import pytest

from operators.pulsarconsumer.app import run

_FAILS: Final = """
import threading, time
import pulsar
from operators.pulsarconsumer.app.run import run_to_end

client = pulsar.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=2)
began = threading.Event()

def connect():
    began.set()
    client.create_producer("t")

def fail():
    threading.Thread(target=connect, daemon=True).start()
    began.wait()
    raise OSError("a port is in use")

class Slow:
    def __del__(self):
        time.sleep(5)

client.slow = Slow()
run_to_end(fail)
"""
"""Shutting down the interpreter takes longer than the call of the client."""


def test_process_that_fails_during_a_call_of_the_client_does_not_abort() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAILS], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "a port is in use" in done.stdout + done.stderr
    assert "terminate" not in done.stderr


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"HTTPS_PROXY": "http://proxy:3128", "http_proxy": "http://p:1"}, True),
        ({"ALL_PROXY": "socks5://proxy:1080"}, True),
        ({"HTTPS_PROXY": "", "NO_PROXY": "10.0.0.0/8"}, False),
        ({}, False),
    ],
)
def test_proxy_that_has_no_effect_is_named(
    environ: dict[str, str],
    named: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def end(serving: Coroutine[None, None, int]) -> int:
        serving.close()
        return 0

    monkeypatch.setattr(run.asyncio, "run", end)
    needed = {
        "PULSAR_CONSUMER_SERVER": "pulsar://p:6650",
        "PULSAR_CONSUMER_TOPIC": "t",
        "PULSAR_CONSUMER_SUBSCRIPTION_NAME": "s",
    }

    assert run.main(needed | environ) == 0
    lines = [json.loads(line) for line in "".join(capsys.readouterr()).splitlines() if line]
    found = [line["variables"] for line in lines if "no proxy" in line["msg"]]
    wanted = sorted(name for name in environ if name != "NO_PROXY")
    assert found == ([wanted] if named else [])
    assert "3128" not in str(lines), "a proxy may contain a password"
