"""Run one of the benchmarks: `python -m lab.bench ID`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from tools.cluster.binaries import export_assets
from tools.cluster.command_line import Parser, run
from tools.dev.operators import has_module, list_operators

_LIBRARY: Final = "library"
"""The benchmark that is not of one operator."""
_WITH_API_SERVER: Final = "podset"


def main(argv: Sequence[str] | None = None) -> int:
    """Replace this process with a benchmark, which gets the other arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    known = [each for each in list_operators() if has_module(f"lab.bench.{each}")]
    known.append(_LIBRARY)
    parser = Parser(
        prog="./dev bench",
        description="Run the benchmark of an operator or of the library. `./dev bench ID --help` "
        "lists the options of a benchmark.",
    )
    parser.add_argument("id", metavar="ID", choices=known, help="benchmark")
    # Everything after the id belongs to the benchmark.
    chosen = parser.parse_args(arguments[:1]).id
    options = arguments[1:]
    if chosen == _WITH_API_SERVER and not {"-h", "--help"} & set(options):
        export_assets()
    os.execv(sys.executable, [sys.executable, "-m", f"lab.bench.{chosen}", *options])


if __name__ == "__main__":
    sys.exit(run(main))
