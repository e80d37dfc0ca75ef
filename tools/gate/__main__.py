"""Run the gate: `./dev test`."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence

from tools.cluster.command_line import Parser
from tools.cluster.progress import open_progress
from tools.gate.counts import Counts
from tools.gate.run import Run
from tools.gate.steps import REPORTS, ROOT, Scope, Step, build_steps, choose_steps


def main(argv: Sequence[str] | None = None) -> int:
    """Run the selected steps and print the number of tests as the last line."""
    steps = build_steps(sys.executable)
    options = parse_options(steps, argv)
    chosen = choose_steps(steps, options.only, options.skip, everything=options.all)
    shutil.rmtree(ROOT / REPORTS, ignore_errors=True)
    (ROOT / REPORTS).mkdir(parents=True)
    progress = open_progress("test")
    results = Run(progress, keep_going=options.keep_going).run(chosen)
    for result in results:
        if not result.passed:
            step = result.step
            progress.say(f"Failed: {step.title}. Run it again: ./dev test --only {step.name}")
    progress.say(f"Log: {progress.log_path}")
    total = sum((result.counts for result in results), Counts())
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 0 if all(result.passed for result in results) else 1


def parse_options(steps: Sequence[Step], argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; exits with 2 and a message if it is wrong."""
    names = [step.name for step in steps]
    parser = Parser(
        prog="./dev test",
        description="Run the checks that every change must pass.",
        epilog="\n".join(_describe(steps)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--all", action="store_true", help="also run the steps of every night and of a release"
    )
    for option, text in (("--only", "run only these steps"), ("--skip", "skip these steps")):
        parser.add_argument(
            option,
            action="extend",
            nargs="+",
            choices=names,
            default=[],
            metavar="STEP",
            help=f"{text}; repeatable",
        )
    parser.add_argument("--keep-going", action="store_true", help="continue after a failed step")
    return parser.parse_args(argv)


def _describe(steps: Sequence[Step]) -> Iterator[str]:
    width = max(len(step.name) for step in steps)
    titles = {
        Scope.ALWAYS: "Steps:",
        Scope.ALL: "Steps of --all:",
        Scope.NAMED: "Steps that run only with --only:",
    }
    for scope, title in titles.items():
        yield title
        yield from (f"  {each.name:{width}}  {each.title}" for each in steps if each.scope is scope)


if __name__ == "__main__":
    raise SystemExit(main())
