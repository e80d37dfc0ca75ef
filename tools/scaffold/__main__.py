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
  operators/{id}/api/v1alpha1.py      fields, conditions, reasons; then ./dev generate
  operators/{id}/resources.py         what it makes
  operators/{id}/reconcile.py         what is, and what to write
  operators/{id}/controller.py        what it watches
  operators/{id}/rbac.py              what it may do
  operators/{id}/conformance_test.py  an object of yours, and a change of it
  tools/fuzz/subjects/{id}.py         the same for the fuzzer; then python -m tools.fuzz.coverage
  tools/sweep/workloads/{id}.py       what users do with it, for the fault sweep
  tests/e2e/{id}_test.py              the same on a real cluster
What people read: README.md, CHANGELOG.md, examples and the summary in controller.py of
operators/{id}; Chart.yaml, README.md and templates/NOTES.txt of helm/{id}; the table in README.md.

Try it:
  python -m pytest operators/{id} helm/{id} docs
  ./dev demo {id}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parse(argv)
    names = Names.build(options.operator, options.kind, options.plural, options.group)
    for path in create(_ROOT, names):
        print(path)
    for module in ("tools.generate", "tools.fuzz.coverage"):
        done = subprocess.run([sys.executable, "-m", module], cwd=_ROOT, check=False)
        if done.returncode:
            return done.returncode
    print(_NEXT.format(page=PAGE, id=names.id), end="")
    return 0


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
