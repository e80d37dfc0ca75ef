"""Processes under measurement: their CPU seconds and memory, as the kernel counts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from libs.common.testing.processes import stop_process

_TICKS: Final = os.sysconf("SC_CLK_TCK")
STOP_SECONDS: Final = 15.0
"""Maximum seconds in which a process exits by itself."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a process has used so far.

    Attributes:
        cpu_seconds: User and system time since its start.
        memory_mib: Resident memory now.
        files_mib: Part of the resident memory that is read from files, such as shared libraries.
        peak_mib: Most resident memory so far.
    """

    cpu_seconds: float
    memory_mib: float
    files_mib: float
    peak_mib: float


def read_usage(pid: int) -> Usage:
    """Read what a process has used.

    Raises:
        FileNotFoundError: There is no such process.
    """
    # The name in parentheses may hold spaces; what follows it does not.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return Usage(cpu, _mib(status["VmRSS"]), _mib(status["RssFile"]), _mib(status["VmHWM"]))


def _mib(text: str) -> float:
    return int(text.split(maxsplit=1)[0]) / 1024


class OperatorProcess:
    """One operator as its own process, as in its image.

    Args:
        operator_id: Which one.
        kubeconfig: How it reaches the API server.
        settings: Environment variables without the prefix, such as `WATCH_NAMESPACES`.
        log: File that its output goes to.
    """

    def __init__(
        self, operator_id: str, kubeconfig: Path, settings: Mapping[str, str], log: Path
    ) -> None:
        """Prepare; the process starts with the context."""
        prefix = operator_id.upper()
        defaults = {
            "KUBECONFIG": str(kubeconfig),
            "LEADER_ELECT": "false",
            "METRICS_BIND_ADDRESS": "0",
            "HEALTH_PROBE_BIND_ADDRESS": "0",
            "LOG_LEVEL": "warning",
        }
        self._environment = os.environ | {
            f"{prefix}_{name}": value for name, value in {**defaults, **settings}.items()
        }
        self._args = [sys.executable, "-m", f"operators.{operator_id}"]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the process."""
        with self._log.open("ab") as stream:
            self._process = subprocess.Popen(
                self._args, env=self._environment, stdout=stream, stderr=stream
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the process."""
        assert self._process is not None
        stop_process(self._process, STOP_SECONDS)

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of the sorted values does not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(0, min(len(ordered) - 1, round(share * len(ordered) + 0.5) - 1))
    return ordered[rank]
