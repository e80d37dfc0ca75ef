"""Command line: `python -m lab.soak churn podset`, `consumers`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from lab.fuzz.subject import OPERATORS, load_subjects
from lab.soak.churn import choose, run_churn
from lab.soak.consumers import describe, run_consumers
from operators.pulsarconsumer.testing.broker import ASSETS_VARIABLE as PULSAR_VARIABLE
from tools.cluster.binaries import export_assets
from tools.cluster.command_line import Parser
from tools.pulsar import ensure_pulsar


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    parser = Parser(prog="python -m lab.soak", description=__doc__)
    parser.add_argument("what", choices=("churn", "consumers"))
    parser.add_argument("operators", metavar="operator", choices=OPERATORS, nargs="*")
    parser.add_argument("--minutes", type=float, default=20.0, help="[default 20]")
    parser.add_argument(
        "--period", type=float, default=0.2, help="seconds between two changes [default 0.2]"
    )
    parser.add_argument("--seed", default="slipway", help="of the kills of consumers")
    options = parser.parse_args(argv)
    seconds = options.minutes * 60
    if options.what == "consumers":
        os.environ[PULSAR_VARIABLE] = str(ensure_pulsar())
        results = asyncio.run(run_consumers(seconds, options.seed))
        print("\n".join(describe(results)))
        problems = [each for result in results for each in result.problems]
    else:
        problems = _run_churn(options.operators or OPERATORS[:1], seconds, options.period)
    print("\n".join(problems) or f"{options.what}: all well")
    return int(bool(problems))


def _run_churn(operators: Sequence[str], seconds: float, period: float) -> list[str]:
    export_assets()
    problems = []
    for operator in operators:
        subject = choose(load_subjects(), operator)
        log = Path("dist/soak") / f"{operator}.log"
        churn = asyncio.run(run_churn(subject, seconds, log, period))
        problems += [f"{operator}: {each}" for each in churn.problems]
    return problems


if __name__ == "__main__":
    raise SystemExit(main())
