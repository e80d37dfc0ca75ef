"""Write a new operator into this repository, or a project that uses the library from its wheel."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from libs.common.project.__main__ import add_options
from libs.common.project.errors import GenerateError
from libs.common.project.names import Names
from tools.cluster.command_line import Parser, run
from tools.cluster.errors import ToolError
from tools.cluster.progress import open_progress
from tools.scaffold.create import create
from tools.scaffold.standalone import create_standalone

_ROOT: Final = Path(__file__).resolve().parents[2]
_NEXT: Final = """
The new operator creates ConfigMaps. It works; now replace its content:
  operators/{id}/api.py            fields, conditions, reasons
  operators/{id}/examples          objects that users apply; the conformance suite applies one
  operators/{id}/controller.py     what it watches, plans and writes; its summary
  operators/{id}/operator_test.py  a change of the example, and your tests
  tests/e2e/{id}_test.py           the example on a real cluster
Text for users: README.md and CHANGELOG.md of operators/{id}; Chart.yaml, README.md and
templates/NOTES.txt of helm/{id}; the table in README.md.

After a change:
  ./dev generate
  python -m pytest operators/{id} helm/{id}
To run it on a cluster:
  ./dev demo {id}
"""
_NEXT_STANDALONE: Final = """
{root}/api.py            the kind: fields, conditions, reasons
{root}/controller.py     what the operator watches, plans and reports
{root}/test_operator.py  the conformance suite and your tests
All other files are generated. After a change:
  cd {root}
  .venv/bin/python -m slipway_operators.project generate
  .venv/bin/python -m pytest
"""
_DESCRIPTION: Final = """\
Write a new operator with one kind into this repository: package, tests, chart, end-to-end test,
README, and the generated files. With --standalone, write a small project outside of the repository.

--finalizer, --cluster-scoped, --second-kind and --webhook require --standalone."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parse(argv)
    domain = "slipway.dev" if options.standalone is None else "example.com"
    group = options.group or f"{options.operator}.{domain}"
    try:
        names = Names.build(options.operator, options.kind, group, options.plural)
    except GenerateError as err:
        raise ToolError(f"Cannot use these names: {'; '.join(err.problems)}") from None
    if options.standalone is not None:
        create_standalone(
            options.standalone,
            names,
            open_progress("new"),
            finalizer=options.finalizer,
            cluster=options.cluster_scoped,
            second_kind=options.second_kind,
            webhook=options.webhook,
        )
        print(_NEXT_STANDALONE.format(root=options.standalone), end="")
        return 0
    for path in create(_ROOT, names):
        print(path)
    done = subprocess.run([sys.executable, "-m", "tools.generate"], cwd=_ROOT, check=False)
    if done.returncode:
        return done.returncode
    print(_NEXT.format(id=names.id), end="")
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="./dev new", description=_DESCRIPTION)
    parser.add_argument("operator", metavar="ID", help="one lower-case word, such as backups")
    parser.add_argument(
        "--standalone",
        type=Path,
        metavar="DIR",
        help="write a project into this new folder, with the library in its .venv",
    )
    add_options(parser)
    options = parser.parse_args(argv)
    chosen = ("finalizer", "cluster_scoped", "second_kind", "webhook")
    if options.standalone is None and any(getattr(options, name) for name in chosen):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in chosen)
        parser.error(f"{flags} require --standalone")
    return options


if __name__ == "__main__":
    raise SystemExit(run(main))
