"""Measure: what a process holds as time goes by, and whether that grows. Pure except for /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

_DEPTH: Final = re.compile(r"^workqueue_depth(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
_GROWTH: Final = 1.10
"""Growth from the second quarter to the last that counts as flat: 10 percent."""
_FEWEST: Final = 4
"""Minimum number of samples for a result."""
_FEW: Final = 4
"""Descriptors that may come and go."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of a process.

    Attributes:
        second: Seconds since the start.
        memory: Resident memory in KiB.
        files: Open file descriptors.
        threads: Threads.
        depth: Keys that wait in the work queues.
    """

    second: float
    memory: int
    files: int
    threads: int
    depth: float


def take_sample(pid: int, second: float, metrics: str) -> Sample:
    """Look at a process."""
    folder = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    return Sample(
        second,
        int(status["VmRSS"].split()[0]),
        len(os.listdir(folder / "fd")),
        int(status["Threads"]),
        sum(float(each) for each in _DEPTH.findall(metrics)),
    )


def split_quarters(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Return the second quarter and the last; the first is warm-up."""
    quarter = len(samples) // 4
    return samples[quarter : 2 * quarter], samples[-quarter:]


def find_growth(samples: Sequence[Sample]) -> list[str]:
    """List what grew; the first quarter is warm-up."""
    if len(samples) < _FEWEST:
        return ["too few samples to tell"]
    early, late = split_quarters(samples)
    found = []
    before, after = (median(each.memory for each in part) for part in (early, late))
    if after > before * _GROWTH:
        found.append(f"memory grew from {before / 1024:.0f} to {after / 1024:.0f} MiB")
    for name in ("files", "threads"):
        before, after = (median(getattr(each, name) for each in part) for part in (early, late))
        if after > before + _FEW:
            found.append(f"{name} grew from {before:.0f} to {after:.0f}")
    if samples[-1].depth:
        found.append(f"{samples[-1].depth:.0f} keys still wait at the end")
    return found
