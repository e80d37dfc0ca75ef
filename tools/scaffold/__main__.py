"""Start a new operator: `./dev new backups --kind Backup`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.cluster.command_line import run
from tools.scaffold.create import create
from tools.scaffold.names import Names
from tools.scaffold.tutorial import PAGE

_ROOT: Final = Path(__file__).resolve().parents[2]
_NEXT: Final = """
It keeps ConfigMaps, as the operator of {page} does, and works as it is. Make it yours:
  operators/{id}/api/v1alpha1.py   fields, conditions, reasons; then ./dev generate
  operators/{id}/reconcile.py      what is, and what to write
  operators/{id}/rbac.py           what it may do

Try it:
  python -m pytest operators/{id}
  ./dev demo {id}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parse(argv)
    names = Names.build(options.operator, options.kind, options.plural, options.group)
    for path in create(_ROOT, names):
        print(path)
    command = [sys.executable, "-m", "tools.generate"]
    done = subprocess.run(command, cwd=_ROOT, check=False)
    if done.returncode == 0:
        print(_NEXT.format(page=PAGE, id=names.id), end="")
    return done.returncode


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev new",
        description="Start a new operator with one kind: package, tests, chart, end-to-end test, "
        "README, and what is generated from them.",
    )
    parser.add_argument("operator", metavar="ID", help="one lower-case word, such as backups")
    parser.add_argument("--kind", required=True, help="its kind, such as Backup")
    parser.add_argument("--plural", default="", help="plural of the kind, such as backups")
    parser.add_argument("--group", default="", help="API group; <ID>.slipway.dev by default")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(run(main))
