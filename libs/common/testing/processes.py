"""Processes that tests start."""

from __future__ import annotations

import subprocess


def stop_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Stop a process, by force if it does not exit in time."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
