"""Inject faults at the writes and waits of operators that run on a real API server.

`./dev sweep run --help` describes the sweep of any other operator.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.sweep.anyop import command as anyop
from lab.sweep.commands import Options, replay_trial, sweep_operators, try_mutants
from lab.sweep.modes import Mode
from lab.sweep.scaling import run_child
from lab.sweep.workload import OPERATORS
from lab.sweep.zygote import Zygote, fork_zygote
from tools.cluster.command_line import Parser

_FOLDER = Path("dist/sweep")
_GARBAGE = "400"
"""GOGC of the API server and etcd: the percentage by which the heap may grow before a collection.
At Go's default of 100, garbage collection is a quarter of their cost of a trial."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    os.environ.setdefault("GOGC", _GARBAGE)
    from tools.cluster.binaries import export_assets

    if words[:1] and words[0] in anyop.COMMANDS:
        if not {"-h", "--help"} & {*words[1:3]}:
            export_assets()
        return anyop.main(words)
    options = _parse(words)
    export_assets()
    operators = OPERATORS if options.operator in ("", "mutants") else (options.operator,)
    for operator in OPERATORS:
        importlib.import_module(f"operators.{operator}.controller")
    importlib.import_module("uvloop")
    # Fork before any thread or event loop exists, and before importing a module that starts one.
    zygote = fork_zygote(run_child)
    return anyop.run_loop(lambda: _run(options, operators, zygote))


async def _run(options: Options, operators: Sequence[str], zygote: Zygote) -> int:
    try:
        if options.replay is not None:
            return await replay_trial(options, zygote)
        if options.operator == "mutants":
            return await try_mutants(options, zygote)
        return await sweep_operators(options, operators, zygote)
    finally:
        await zygote.close()


def _parse(argv: Sequence[str]) -> Options:
    parser = Parser(prog="./dev sweep", description=__doc__)
    choices = (*OPERATORS, "mutants")
    parser.add_argument(
        "operator",
        nargs="?",
        default=None,
        choices=choices,
        metavar="ID",
        help="operator to sweep, all by default; `mutants` reintroduces bugs and reports which test"
        " finds them",
    )
    parser.add_argument(
        "--tier",
        choices=("gate", "sorts", "full"),
        default="gate",
        help="number of trials: each mode once (gate, the default), at each sort of moment (sorts)"
        " or at every moment (full). One of",
    )
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="run the trial of a replay file and print its log",
    )
    parser.add_argument("--jobs", type=int, default=12, help="concurrent trials. Defaults to 12")
    parser.add_argument("--write", action="store_true", help="write docs/reference/reliability.md")
    parser.add_argument("--resume", action="store_true", help="skip trials that passed before")
    parser.add_argument("--workload", default="", help="run only this workload")
    parser.add_argument(
        "--mode",
        action="append",
        default=[],
        choices=[*map(str, Mode)],
        metavar="MODE",
        help="inject only this fault; none runs without faults; repeatable. One of",
    )
    parser.add_argument(
        "--mutant", action="append", default=[], help="run only this mutant; repeatable"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed for the choice of moments. Defaults to 0"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report")
    found = parser.parse_args(argv)
    return Options(
        operator=found.operator or "",
        tier=found.tier,
        replay=found.replay,
        jobs=found.jobs,
        write=found.write,
        workload=found.workload,
        modes=tuple(map(Mode, found.mode)),
        mutants=tuple(found.mutant),
        seed=found.seed,
        resume=found.resume,
        folder=_FOLDER,
        junit=found.junit,
    )


if __name__ == "__main__":
    raise SystemExit(main())
