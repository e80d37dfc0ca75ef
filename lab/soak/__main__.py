"""Command line: `python -m lab.soak churn podset`, `nodes`, `jvms`, `consumers`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.fuzz.subject import OPERATORS, load_subjects
from lab.soak.churn import choose, run_churn
from lab.soak.consumers import describe, run_consumers
from lab.soak.jvms import run_jvms
from lab.soak.nodes import run_kills
from lab.soak.page import CHURN, NODES, tabulate_churn, tabulate_replacements, write_rows
from lab.soak.prerequisites import install_operators
from lab.soak.workloads import WORKS
from operators.pulsarconsumer.testing.broker import ASSETS_VARIABLE as PULSAR_VARIABLE
from tools.cluster.command_line import Parser
from tools.pulsar import ensure_pulsar


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    if options.what == "jvms":
        problems = asyncio.run(run_jvms(options.minutes * 60))
        print("\n".join(problems) or "JVMs: all well")
        return int(bool(problems))
    if options.what == "consumers":
        os.environ[PULSAR_VARIABLE] = str(ensure_pulsar())
        results = asyncio.run(run_consumers(options.minutes * 60, options.seed))
        print("\n".join(describe(results)))
        return int(any(result.problems for result in results))
    problems = _run_nodes(options) if options.what == "nodes" else _run_churn(options)
    print("\n".join(problems) or f"{options.what}: all well")
    return int(bool(problems))


def _run_nodes(options: argparse.Namespace) -> list[str]:
    works = [work for work in WORKS if work.operator in (options.operators or [work.operator])]
    if options.install:
        install_operators((work.operator for work in works), options.namespace)
    recoveries = asyncio.run(run_kills(works, options.namespace))
    if options.write:
        write_rows("nodes", NODES, tabulate_replacements(recoveries))
    return [f"{each.fault}: {each.problem}" for each in recoveries if each.problem]


def _run_churn(options: argparse.Namespace) -> list[str]:
    from tools.cluster.binaries import export_assets

    export_assets()
    problems = []
    for operator in options.operators or OPERATORS[:1]:
        subject = choose(load_subjects(), operator)
        log = Path("dist/soak") / f"{operator}.log"
        churn = asyncio.run(run_churn(subject, options.minutes * 60, log, options.period))
        problems += [f"{operator}: {each}" for each in churn.problems]
        if options.write and churn.samples:
            write_rows("churn", CHURN, tabulate_churn(operator, churn.samples, churn.changes))
    return problems


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m lab.soak", description=__doc__)
    parser.add_argument("what", choices=("churn", "jvms", "nodes", "consumers"))
    parser.add_argument("operators", metavar="operator", choices=OPERATORS, nargs="*")
    parser.add_argument("--write", action="store_true", help="put the figures into the page")
    parser.add_argument(
        "--install", action="store_true", help="install the operators before their nodes die"
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="[default 20]")
    parser.add_argument(
        "--period", type=float, default=0.2, help="seconds between two changes [default 0.2]"
    )
    parser.add_argument("--seed", default="slipway", help="of the kills of consumers")
    parser.add_argument("--namespace", "-n", default="default", help="where the operator is")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
