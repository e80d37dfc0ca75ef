"""Promtool, which checks and evaluates rules and queries as Prometheus does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

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
