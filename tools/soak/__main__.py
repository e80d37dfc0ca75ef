"""Command line: `python -m tools.soak churn podset --minutes 20`, `nodes podset`, `jvms`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from libs.common.testing.apiserver import ASSETS_VARIABLE
from tools.fuzz.subject import OPERATORS, load_subjects
from tools.soak.churn import choose, run_churn
from tools.soak.jvms import run_jvms
from tools.soak.nodes import run_deaths


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    if options.what == "jvms":
        problems = asyncio.run(run_jvms(options.minutes * 60))
        print("\n".join(problems) or "JVMs: all well")
        return int(bool(problems))
    subject = choose(load_subjects(), options.operator)
    if options.what == "nodes":
        problems = asyncio.run(run_deaths(subject, options.namespace))
    else:
        if not os.environ.get(ASSETS_VARIABLE):
            from tools.cluster.binaries import ensure_assets

            os.environ[ASSETS_VARIABLE] = str(ensure_assets())
        log = Path("dist/soak") / f"{options.operator}.log"
        churn = run_churn(subject, options.minutes * 60, log, options.period)
        problems = asyncio.run(churn)
    print("\n".join(problems) or f"{options.operator}: all well")
    return int(bool(problems))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("what", choices=("churn", "jvms", "nodes"))
    parser.add_argument("operator", choices=OPERATORS, nargs="?", default=OPERATORS[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="[default 20]")
    parser.add_argument(
        "--period", type=float, default=0.2, help="seconds between two changes [default 0.2]"
    )
    parser.add_argument("--namespace", "-n", default="default", help="where the operator is")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
