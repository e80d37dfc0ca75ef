"""Check the format and lint rules with the locked versions of black and ruff."""

from __future__ import annotations

import subprocess
import sys

from tools.gate.steps import ROOT


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
