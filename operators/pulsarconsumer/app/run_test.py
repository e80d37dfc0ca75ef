"""How the process ends."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

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
