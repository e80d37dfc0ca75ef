"""Inject faults at the writes and watch events of any operator that a command starts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from lab.sweep.anyop import report
from lab.sweep.anyop.campaign import FAULTS, MORE, Campaign, order_plans
from lab.sweep.anyop.cluster import Inputs, open_bench
from lab.sweep.journal import Journal
from lab.sweep.modes import Mode
from lab.sweep.outcome import render_timeline
from tools.cluster.command_line import Parser
from tools.cluster.command_line import run as run_tool
from tools.cluster.errors import UsageError

COMMANDS: Final = ("run", "replay")
_OUTPUT: Final = Path("sweep-findings")
_SAMPLES: Final = Path("config/samples")
_UNDISTURBED: Final = 6
_PATHS: Final = (
    ("--crds", "CRDs of the operator; file or folder, repeatable"),
    ("--manifests", "account, roles and other objects that the operator needs; repeatable"),
)
_REPLAYS: Final = 3


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `run` beside its inputs."""

    modes: tuple[Mode, ...]
    lists: bool
    resume: bool
    jobs: int
    budget: float | None
    undisturbed: int
    output: Path
    junit: Path | None


def start() -> int:
    """Run the command of the installed package, which builds no control plane."""
    words = sys.argv[1:]
    if words[:1] in ([each] for each in COMMANDS):
        return main(words)
    print(f"Usage: ./dev sweep {'|'.join(COMMANDS)} --help", file=sys.stderr)
    return 2


def main(argv: Sequence[str]) -> int:
    """Run `run` or `replay`, and return the exit status: 1 if there are findings."""
    if argv[0] == "replay":
        parser = Parser(prog="./dev sweep replay", description="Repeat the trial of a finding.")
        parser.add_argument("folder", type=Path, help="folder of the finding")
        folder = parser.parse_args(argv[1:]).folder
        return run_tool(lambda: run_loop(lambda: replay(folder)))
    inputs, options = parse(argv[1:])
    return run_tool(lambda: run_loop(lambda: sweep(inputs, options)))


def parse(argv: Sequence[str]) -> tuple[Inputs, Options]:
    """Parse the command line of `run`."""
    parser = _build_parser()
    own, found, command = _split(argv)
    values = parser.parse_args(own)
    if not (found and command):
        parser.error("The command that starts the operator is missing: put it after `--`")
    workload = values.workload or _SAMPLES
    inputs = Inputs(
        values.crds,
        values.manifests,
        workload,
        command,
        values.controllers,
        values.quiet,
        values.patience,
        _read_patterns(values.ignore, parser),
    )
    modes = tuple(map(Mode, values.fault)) or (FAULTS + MORE if values.more else FAULTS)
    jobs = values.jobs or 6 * (os.cpu_count() or 1)
    flags = values.list, values.resume
    return inputs, Options(
        modes, *flags, jobs, values.budget, values.undisturbed, values.output, values.junit
    )


async def sweep(inputs: Inputs, options: Options) -> int:
    """Run a campaign, print and write its findings, and return the exit status."""
    logs = options.output / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.iterdir():
        old.unlink()
    async with open_bench(inputs, logs.resolve()) as bench:
        _tell("Control plane is ready; running the operator without faults")
        campaign = Campaign(bench, options.jobs, _tell)
        reference = await campaign.refer(max(2, options.undisturbed))
        writes = sum(moment.side == "write" for moment in reference.moments)
        _tell(
            f"{writes} writes and {len(reference.moments) - writes} watch events;"
            f" {reference.runs[0].seconds:.0f} s without faults"
        )
        if options.lists:
            print("\n".join(map(str, order_plans(reference.moments, options.modes))))
            return 0
        journal = Journal(options.output / "passed.journal", resume=options.resume)
        result = await campaign.sweep(reference, options.modes, options.budget, journal)
    folders = report.write_folders(result, inputs, options.output / "findings")
    text = report.render(result, folders)
    print(text)
    (options.output / "report.txt").write_text(text + "\n")
    (options.output / "report.html").write_text(report.render_page(text, folders))
    if options.junit is not None:
        report.write_junit(options.junit, result)
    return int(bool(result.groups or reference.problems))


async def replay(folder: Path) -> int:
    """Repeat the trial of a finding, and return 1 if it fails again."""
    if not (folder / "replay.json").exists():
        raise UsageError(f"{folder} is no folder of a finding: it contains no replay.json")
    inputs, plan = report.read_finding(folder)
    with tempfile.TemporaryDirectory() as logs:
        async with open_bench(inputs, Path(logs)) as bench:
            campaign = Campaign(bench, _REPLAYS, _tell)
            reference = await campaign.refer(_REPLAYS)
            outcome, problems = await campaign.try_plan(plan, reference)
            print(outcome.log)
    print(render_timeline(outcome))
    print("\n".join(each.text for each in problems) or "The trial passed.")
    return int(bool(problems))


def run_loop(main: Callable[[], Awaitable[int]]) -> int:
    """Run a sweep until it ends or SIGTERM comes, and return its exit status."""

    async def run() -> int:
        # However the sweep ends, it must leave no API server behind. A KeyboardInterrupt would be
        # raised in any callback, and the tasks that wait for it would never end.
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            return await main()
        except* UsageError as group:
            raise _find_first(group) from None

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM


def _find_first(group: BaseExceptionGroup[UsageError]) -> UsageError:
    first = group.exceptions[0]
    return _find_first(first) if isinstance(first, BaseExceptionGroup) else first


def _read_patterns(path: Path | None, parser: Parser) -> tuple[str, ...]:
    """Read patterns such as `deployments web-*.spec.replicas`."""
    if path is None:
        return ()
    patterns = yaml.safe_load(path.read_text()) if path.exists() else None
    if not isinstance(patterns, list):
        parser.error(f"--ignore: {path} is no YAML list of fields")
    return tuple(map(str, patterns))


def _split(argv: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    words = list(argv)
    if "--" not in words:
        return words, False, []
    place = words.index("--")
    return words[:place], True, words[place + 1 :]


def _build_parser() -> Parser:
    parser = Parser(
        prog="./dev sweep run",
        description=f"{__doc__} Give the command after `--`; {{namespace}}, {{port}} and"
        " {kubeconfig} in it are replaced.",
    )
    for name, text in _PATHS:
        parser.add_argument(name, type=Path, action="append", metavar="PATH", default=[], help=text)
    parser.add_argument(
        "--workload",
        type=Path,
        metavar="PATH",
        help=f"phases (NN-name.yaml and others), or samples. Defaults to {_SAMPLES}",
    )
    parser.add_argument(
        "--controllers",
        action="append",
        default=[],
        metavar="NAME",
        help="controller of kube-controller-manager to run, such as deployment-controller",
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        choices=[*map(str, FAULTS + MORE)],
        metavar="FAULT",
        help="try only this fault; repeatable. One of",
    )
    parser.add_argument("--more", action="store_true", help=f"also try {', '.join(MORE)}")
    parser.add_argument("--list", action="store_true", help="list the trials, and run none")
    parser.add_argument("--resume", action="store_true", help="skip trials that passed before")
    parser.add_argument("--ignore", type=Path, metavar="FILE", help="YAML list of fields to ignore")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="stop after this time")
    parser.add_argument("--jobs", type=int, help="concurrent trials. Defaults to 6 for each CPU")
    parser.add_argument(
        "--undisturbed", type=int, default=_UNDISTURBED, help="runs without faults to compare"
    )
    parser.add_argument(
        "--quiet", type=float, default=3.0, help="seconds without a change that end a phase"
    )
    parser.add_argument(
        "--patience", type=float, default=75.0, help="seconds in which the operator must recover"
    )
    parser.add_argument("--output", type=Path, default=_OUTPUT, help="folder of the findings")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report")
    return parser


def _tell(text: str) -> None:
    print(text, flush=True, file=sys.stderr)
