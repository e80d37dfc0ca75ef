"""Run one of the benchmarks: `python -m tools.bench ID`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tools.cluster.command_line import Parser, run
from tools.dev.operators import has_module, list_operators


def main(argv: Sequence[str] | None = None) -> int:
    """Replace this process with a benchmark, which gets the other arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    known = [each for each in list_operators() if has_module(f"tools.bench.{each}")]
    known.append("library")
    parser = Parser(
        prog="./dev bench",
        description="Run the benchmark of an operator or of the library. `./dev bench ID --help` "
        "lists the options of a benchmark.",
    )
    parser.add_argument("id", metavar="ID", choices=known, help="benchmark")
    # Everything after the id belongs to the benchmark.
    module = f"tools.bench.{parser.parse_args(arguments[:1]).id}"
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments[1:]])


if __name__ == "__main__":
    sys.exit(run(main))
