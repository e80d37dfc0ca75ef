"""Run the gate: `./dev test`."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from libs.common.testing.pulsar import ASSETS_VARIABLE
from tools.cluster.binaries import ensure_assets, ensure_tool
from tools.cluster.cache import Cache
from tools.cluster.docker import ensure_docker
from tools.cluster.errors import CommandFailed, ToolError
from tools.cluster.kind_cluster import up
from tools.cluster.progress import Progress, open_progress
from tools.gate.counts import Counts, read_counts
from tools.gate.steps import PANTS_REPORTS, REPORTS, ROOT, Step, build_steps
from tools.jvm import KIT_VARIABLE, ensure_kit
from tools.pulsar import ensure_pulsar

_TAIL: Final = 150
"""Lines of a failed step that are shown; the log has all of them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps that were asked for, and end with a line that counts what ran."""
    steps = build_steps(sys.executable)
    options = _parse(steps, argv)
    chosen = [
        step
        for step in steps
        if (step.name in options.only if options.only else not step.by_name)
        and step.name not in options.skip
    ]
    for folder in (REPORTS, PANTS_REPORTS):
        shutil.rmtree(ROOT / folder, ignore_errors=True)
    (ROOT / REPORTS).mkdir(parents=True)
    progress = open_progress("test")
    total = Counts()
    failed: list[Step] = []
    for step in chosen:
        passed = _run(step, progress)
        counts = read_counts(ROOT, step.reports) if step.reports else Counts()
        if not passed:
            failed.append(step)
            if not counts.failed:
                counts += Counts(failed=1)
        elif not step.reports:
            counts = Counts(passed=1)
        total += counts
        if failed and not options.keep_going:
            break
    for step in failed:
        progress.say(f"Failed: {step.title}. Again: ./dev test --only {step.name}")
    progress.say(f"Log: {progress.log_path}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if failed else 0


def _parse(steps: Sequence[Step], argv: Sequence[str] | None) -> argparse.Namespace:
    names = [step.name for step in steps]
    parser = argparse.ArgumentParser(
        prog="./dev test",
        description="Run everything that CI runs.",
        epilog="Steps: " + "; ".join(f"{step.name}: {step.title}" for step in steps),
    )
    parser.add_argument("--only", nargs="+", choices=names, default=[], help="run these steps")
    parser.add_argument("--skip", nargs="+", choices=names, default=[], help="leave these out")
    parser.add_argument(
        "--keep-going", action="store_true", help="run the steps after one that failed"
    )
    return parser.parse_args(argv)


def _run(step: Step, progress: Progress) -> bool:
    """Run one step and tell whether it passed; its last words are shown if it did not."""
    try:
        environment = _prepare(step, progress)
        with progress.step(step.title):
            progress.run(step.command, env={**environment, **step.environment}, cwd=ROOT)
    except CommandFailed as err:
        progress.say("\n".join(err.output.splitlines()[-_TAIL:]))
        progress.say(f"Failed: {shlex.join(step.command)}")
        return False
    except ToolError as err:
        progress.say(str(err))
        return False
    return True


def _prepare(step: Step, progress: Progress) -> Mapping[str, str]:
    """Make what a step needs, and return the environment by which it finds it."""
    environment = {"PYTHONPATH": str(ROOT)}
    if "assets" in step.needs:
        environment["KUBEBUILDER_ASSETS"] = str(ensure_assets(progress))
    if "jvm" in step.needs:
        environment[KIT_VARIABLE] = str(ensure_kit(progress))
    if "pulsar" in step.needs:
        environment[ASSETS_VARIABLE] = str(ensure_pulsar(progress))
    if "helm" in step.needs:
        environment["SLIPWAY_HELM"] = str(ensure_tool("helm", progress))
        path = str(ensure_tool("kustomize", progress).parent)
        environment["PATH"] = os.pathsep.join([path, os.environ.get("PATH", "")])
    if "cluster" in step.needs:
        ensure_docker(progress, Cache())
        up(progress=progress)
    return environment


if __name__ == "__main__":
    raise SystemExit(main())
