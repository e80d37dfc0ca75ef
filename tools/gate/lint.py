"""Check the format and lint rules with the locked versions of black and ruff."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run both and return 1 if one of them found something."""
    checks = (("black", "--check", "--quiet", "."), ("ruff", "check", "."))
    codes = [
        subprocess.run([sys.executable, "-m", *check], cwd=ROOT, check=False).returncode
        for check in checks
    ]
    return int(any(codes))


if __name__ == "__main__":
    raise SystemExit(main())
