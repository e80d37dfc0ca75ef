"""Check the layers inside packages with import-linter and the contracts of pyproject.toml.

Tests may import anything, and import-linter cannot exclude files, so it checks a copy of the code
without tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_PACKAGES: Final = ("kubectl_slipway", "lab", "libs", "operators", "slipway_handler", "tools")
_CALL: Final = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"


def copy_code(root: Path, target: Path) -> None:
    """Copy the packages without tests, and the contracts."""
    ignore = shutil.ignore_patterns("*_test.py", "conftest.py", "__pycache__")
    for package in _PACKAGES:
        shutil.copytree(root / package, target / package, ignore=ignore)
    shutil.copy(root / "pyproject.toml", target)


def main() -> int:
    """Check the contracts and return the exit status of import-linter."""
    with tempfile.TemporaryDirectory() as folder:
        copy_code(ROOT, Path(folder))
        done = subprocess.run(
            [sys.executable, "-c", _CALL],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": folder},
            check=False,
        )
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
