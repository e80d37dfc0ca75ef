"""The cache of pods of a program with controller-runtime, for comparison: `library_peer/main.go`.

It is built from its module, which takes minutes once.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

from tools.cluster.cache import Cache, digest_of
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress

_MODULE: Final = Path(__file__).with_name("library_peer")
_NAME: Final = "library-peer"


def build_peer() -> Path:
    """Return the program, built if the cache lacks it."""
    progress = open_progress("bench")
    go = ensure_go(progress)

    def build(directory: Path) -> None:
        with progress.step("Program with controller-runtime", "about 5 minutes"):
            go.build(_MODULE, ".", directory / _NAME)

    files = (_MODULE / name for name in ("main.go", "go.mod", "go.sum"))
    return Cache().ensure(_NAME, digest_of(*files), build) / _NAME


def measure_peer(program: Path, url: str) -> dict[str, float]:
    """Fill the cache of the program from a server, and return its figures."""
    done = subprocess.run([program, url], stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
