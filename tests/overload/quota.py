"""A CPU quota for a process, as the kubelet sets it for `limits.cpu`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Final

import pytest

from tools.generate.sources import ROOT

_ROOT: Final = Path("/sys/fs/cgroup")
_PERIOD: Final = 100_000
_SHARES: Final = 20_000
"""Weight compared with other processes of the machine: only the quota limits the process."""
_ENTER: Final = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@contextmanager
def limit_cpu(cores: float) -> Iterator[Path]:
    """Create a control group with a CPU quota, and yield its folder."""
    version_2 = (_ROOT / "cgroup.controllers").exists()
    folder = (_ROOT if version_2 else _ROOT / "cpu") / f"slipway-{secrets.token_hex(4)}"
    quota = round(cores * _PERIOD)
    limits = {"cpu.cfs_period_us": _PERIOD, "cpu.cfs_quota_us": quota, "cpu.shares": _SHARES}
    try:
        if version_2:
            limits = {"cpu.max": quota}  # The default period is the same.
            (_ROOT / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir()
        for name, value in limits.items():
            (folder / name).write_text(str(value))
    except OSError as err:
        pytest.skip(f"cannot create a control group with a CPU quota: {err}")
    try:
        yield folder
    finally:
        folder.rmdir()


def start_in(group: Path, command: Sequence[str], log: Path, **environment: str) -> Popen[bytes]:
    """Start a process in a control group; its output goes to a file."""
    with log.open("wb") as stream:
        return Popen(
            ["/bin/sh", "-c", _ENTER, str(group), *command],
            stdin=DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
