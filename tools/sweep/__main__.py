"""Harm operators at each of their writes and waits, on a real API server: `./dev sweep`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from libs.common.testing.apiserver import ASSETS_VARIABLE
from tools.sweep.commands import Options, replay_trial, sweep_operators, try_mutants
from tools.sweep.modes import Mode
from tools.sweep.scaling import run_child
from tools.sweep.workload import OPERATORS
from tools.sweep.zygote import Zygote, fork_zygote

_FOLDER = Path("dist/sweep")
_GARBAGE = "400"
"""Percent by which the heap of the API server and of etcd may grow before it is collected: at Go's
default of 100 a fourth of what trials cost them is looking for garbage."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    if not os.environ.get(ASSETS_VARIABLE):
        from tools.cluster.binaries import ensure_assets

        os.environ[ASSETS_VARIABLE] = str(ensure_assets())
    operators = OPERATORS if options.operator in ("", "mutants") else (options.operator,)
    for operator in OPERATORS:
        importlib.import_module(f"operators.{operator}.controller")
    importlib.import_module("uvloop")
    os.environ.setdefault("GOGC", _GARBAGE)
    # Forked before there is any thread or event loop, and while nothing is imported that has one.
    zygote = fork_zygote(run_child)
    # Ended in whatever way, a sweep leaves no API server behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return asyncio.run(_run(options, operators, zygote))


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
    parser = argparse.ArgumentParser(prog="./dev sweep", description=__doc__)
    choices = (*OPERATORS, "mutants")
    parser.add_argument(
        "operator",
        nargs="?",
        default="",
        choices=("", *choices),
        metavar="ID",
        help="operator to sweep (default all); `mutants` brings bugs back and looks who finds them",
    )
    parser.add_argument(
        "--tier",
        choices=("gate", "sorts", "writes", "full"),
        default="gate",
        help="how much is tried: each mode once (gate, the default), the main ones at each sort of"
        " moment (sorts) or at all (writes), all of them at all moments (full)",
    )
    parser.add_argument("--replay", type=Path, help="run the trial of a replay file, with its log")
    parser.add_argument("--jobs", type=int, default=12, help="trials at a time [default 12]")
    parser.add_argument("--write", action="store_true", help="write docs/reference/reliability.md")
    parser.add_argument("--resume", action="store_true", help="leave out what passed before")
    parser.add_argument("--workload", default="", help="confine to one workload")
    parser.add_argument(
        "--mode",
        action="append",
        default=[],
        choices=[*map(str, Mode)],
        metavar="MODE",
        help=f"confine to a fault; repeatable: {', '.join(map(str, Mode))}",
    )
    parser.add_argument("--mutant", action="append", default=[], help="confine to one mutant")
    parser.add_argument(
        "--sample", type=int, default=0, help="trials of a mode at most (default 0: all)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="which moments are taken where not all are (default 0)"
    )
    parser.add_argument("--junit", type=Path, help="write a JUnit report")
    found = parser.parse_args(argv)
    return Options(
        operator=found.operator,
        tier=found.tier,
        replay=found.replay,
        jobs=found.jobs,
        write=found.write,
        workload=found.workload,
        modes=tuple(map(Mode, found.mode)),
        mutants=tuple(found.mutant),
        sample=found.sample,
        seed=found.seed,
        resume=found.resume,
        folder=_FOLDER,
        junit=found.junit,
    )


if __name__ == "__main__":
    raise SystemExit(main())
