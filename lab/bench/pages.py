"""Pages of benchmarks that are one file each, and the text that they share."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDER: Final = Path("docs/reference")


def describe_machine() -> str:
    """Describe the machine that something was measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )


def describe_load(load: float) -> list[str]:
    """Return how reliable the times of a run are, as lines of a page."""
    if load < 1:
        return []
    return [
        f"The machine was busy with other work (load {load:.0f} before the run). The seconds",
        "include waiting for a core; rely on the CPU times and the numbers of writes instead.",
        "",
    ]


def save_report(name: str, report: Mapping[str, Any]) -> None:
    """Save the figures of a run as JSON, in dist/."""
    Path("dist").mkdir(exist_ok=True)
    Path(f"dist/bench-{name}.json").write_text(json.dumps(report, indent=1))


def write_page(name: str, lines: Sequence[str], root: Path = ROOT) -> Path:
    """Write the page of one benchmark and return its path."""
    path = root / _FOLDER / f"benchmarks-{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    return path
