"""Promtool, which checks and evaluates rules and queries as Prometheus does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Final

_TIMEOUT_SECONDS: Final = 300


def run_promtool(promtool: Path, *arguments: str | Path) -> None:
    """Run promtool; its output explains a failure."""
    run = subprocess.run(
        [str(promtool), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
        env={**os.environ, "TZ": "UTC"},
    )
    assert run.returncode == 0, run.stdout + run.stderr


def expect_silent(expression: str, time: str) -> dict[str, Any]:
    """Expect an expression without samples."""
    return {"expr": expression, "eval_time": time, "exp_samples": []}


def expect_value(expression: str, time: str, value: float) -> dict[str, Any]:
    """Expect one sample without labels."""
    sample = {"labels": "{}", "value": value}
    return {"expr": expression, "eval_time": time, "exp_samples": [sample]}
