"""Write 3rdparty/python/default.lock from requirements.txt, or with --check compare the two."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.cluster.command_line import Parser, run
from tools.cluster.progress import Progress, open_progress
from tools.lock.lockfile import find_drift, render_lock

ROOT: Final = Path(__file__).parents[2]
REQUIREMENTS: Final = ROOT / "3rdparty/python/requirements.txt"
LOCK: Final = ROOT / "3rdparty/python/default.lock"

_SYSTEMS: Final = ("linux", "mac")
_PYTHON: Final = "CPython==3.13.*"


def resolve(progress: Progress) -> str:
    """Return the text of a fresh lockfile.

    Raises:
        ToolError: pex could not resolve the requirements.
        LockError: They cannot be locked.
    """
    with progress.step("Python packages", "1 minute"), tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch, "lock.json")
        # `./pants --pex` is the pex that Pants itself uses, built from the package index.
        pex = progress.run([ROOT / "pants", "--pex"]).strip().splitlines()[-1]
        command = [sys.executable, pex, "lock", "create", "--style", "universal"]
        for system in _SYSTEMS:
            command += ["--target-system", system]
        command += ["--interpreter-constraint", _PYTHON, "--pip-version", "latest"]
        command += ["--requirement", str(REQUIREMENTS), "--output", str(output)]
        progress.run(command, env={"PEX_SCRIPT": "pex3"}, cwd=Path(scratch))
        return render_lock(json.loads(output.read_text()))


def main() -> int:
    """Run the command line and return its exit code."""
    parser = Parser(prog="python -m tools.lock", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, without the network")
    check: bool = parser.parse_args().check
    progress = open_progress("lock")
    text = LOCK.read_text() if check else resolve(progress)
    problems = find_drift(REQUIREMENTS.read_text(), text)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("Run: python -m tools.lock", file=sys.stderr)
        return 1
    if not check:
        LOCK.write_text(text)
        print(f"Wrote {LOCK.relative_to(ROOT)}: every package with its hashes.")
    return 0


if __name__ == "__main__":
    raise SystemExit(run(main))
