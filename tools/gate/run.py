"""Run steps one after the other; steps that leave a core free run in the background.

What a step needs is prepared by the step itself, so a background step compiles while tests run.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from operators.pulsarconsumer.testing.broker import ASSETS_VARIABLE
from tools.cluster.binaries import ensure_assets, ensure_tool
from tools.cluster.cache import Cache
from tools.cluster.docker import ensure_docker
from tools.cluster.errors import CommandFailed, ToolError
from tools.cluster.kind_cluster import up
from tools.cluster.progress import Progress, Started
from tools.cluster.prometheus import PROMETHEUS_VARIABLE, ensure_prometheus
from tools.dev.images import BUILT_VARIABLE
from tools.gate.counts import Counts, read_counts
from tools.gate.steps import ROOT, Step
from tools.images import build_together, list_all_images
from tools.jvm import KIT_VARIABLE, ensure_kit
from tools.pulsar import ensure_pulsar

_TAIL: Final = 150
"""Number of lines shown of a failed step; the log contains all lines."""

_TIDY_SECONDS: Final = 120.0
"""Seconds that a stopped step has to clean up its processes."""

BACKGROUND_LIMIT: Final = 2
"""Maximum number of steps that run in the background at the same time. Each of them mostly waits,
but with six of them on two cores the tests on a broker took 20 minutes instead of 9, and timed out.
"""

type Prepare = Callable[[str, Progress], Mapping[str, str]]
"""Prepare a need of a step by its name; return the environment variables that refer to it."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of a step.

    Attributes:
        step: The step.
        passed: Whether it passed.
        counts: How many tests ran; a step without reports counts as one.
    """

    step: Step
    passed: bool
    counts: Counts


class Run:
    """A run of the steps of the gate.

    Args:
        progress: Shows the steps.
        keep_going: Whether to continue after a failed step.
        prepare: Prepares what steps need; called once for each need.
    """

    def __init__(
        self, progress: Progress, *, keep_going: bool = False, prepare: Prepare | None = None
    ) -> None:
        """Initialize a run without results."""
        self._progress = progress
        self._keep_going = keep_going
        self._needs = _Needs(prepare or prepare_need)
        self._results: list[StepResult] = []
        self._background: list[_BackgroundStep] = []
        self._turns = _Turns()

    def run(self, steps: Sequence[Step]) -> list[StepResult]:
        """Run steps in order; return the results after the last one has ended."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # As in the background of a shell. Steps would inherit it, but SIGINT must stop them.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self._run_all(steps)
        finally:
            # After Ctrl-C, the end of a step in the background must not start another one.
            self._turns.close()
        return self._results

    def _run_all(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.in_background and step is not steps[-1]:
                self._background.append(
                    _BackgroundStep(step, self._needs, self._progress, self._turns)
                )
            else:
                self._evaluate(step, passed=_execute(step, self._needs, self._progress))
            if self._is_over():
                break
        for background in self._background:
            if self._is_over():
                self._turns.close()
                background.stop()
            passed = background.wait(self._progress)
            if passed is not None:
                self._evaluate(background.step, passed=passed)

    def _is_over(self) -> bool:
        return not self._keep_going and not all(result.passed for result in self._results)

    def _evaluate(self, step: Step, *, passed: bool) -> None:
        counts = read_counts(ROOT, step.reports) if step.reports else Counts()
        if not passed and not counts.failed:
            counts += Counts(failed=1)
        elif passed and not step.reports:
            counts = Counts(passed=1)
        self._results.append(StepResult(step, passed, counts))


class _Needs:
    """What steps need, each prepared once, by the first step that needs it."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._made: dict[str, Mapping[str, str]] = {}

    def get(self, needs: Sequence[str], progress: Progress) -> dict[str, str]:
        """Return the environment variables of some needs; prepare or wait for what is missing."""
        environment = {"PYTHONPATH": str(ROOT)}
        for need in needs:
            with self._lock:
                lock = self._locks.setdefault(need, threading.Lock())
            with lock:
                if need not in self._made:
                    self._made[need] = self._prepare(need, progress)
            environment |= self._made[need]
        return environment


class _Turns:
    """Turns of the steps in the background: `BACKGROUND_LIMIT` at a time, in order."""

    def __init__(self) -> None:
        self._taken = 0
        self._ended = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self) -> int:
        """Return the number of the next turn."""
        self._taken += 1
        return self._taken

    def wait(self, number: int) -> bool:
        """Wait for a turn; return whether it came, or False if turns were closed before."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or number <= self._ended + BACKGROUND_LIMIT)
            return not self._closed

    def close(self) -> None:
        """Let nobody start any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def end(self) -> None:
        """End a turn."""
        with self._changed:
            self._ended += 1
            self._changed.notify_all()


class _BackgroundStep:
    """A step that runs in the background; its output is shown when it has ended.

    It starts when its turn has come.

    A failure must be reported immediately, so the remaining background steps are stopped after
    one. A stopped step receives SIGINT, as from the keyboard, and cleans up its processes.
    """

    def __init__(self, step: Step, needs: _Needs, progress: Progress, turns: _Turns) -> None:
        self.step = step
        self._needs = needs
        self._words = io.StringIO()
        log = progress.log_path.with_suffix(f".{step.name}.log")
        self._progress = Progress(log, Console(file=self._words, highlight=False))
        self._passed = False
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._turns = turns
        self._turn = turns.take()
        self._thread = threading.Thread(target=self._run, daemon=True)
        limit = f"at most {BACKGROUND_LIMIT} at a time"
        progress.say(f"Running in the background, {limit}: {step.title}. Log: {log}")
        self._thread.start()

    def stop(self) -> None:
        """Interrupt the step unless it has ended."""
        with self._lock:
            if not self._thread.is_alive():
                return
            self._stopped = True
            if self._process is not None:
                self._process.send_signal(signal.SIGINT)

    def wait(self, progress: Progress) -> bool | None:
        """Wait for the step; return whether it passed, or None if it was stopped."""
        word = "Stopping" if self._stopped else "Waiting for"
        patience = time.monotonic() + _TIDY_SECONDS
        with progress.step(f"{word}: {self.step.title}"):
            # While it prepares what it needs, nothing has to be cleaned up.
            while self._thread.is_alive() and not (self._stopped and self._process is None):
                self._thread.join(1.0)
                progress.note(self._progress.last_note)
                if self._stopped and self._process is not None and time.monotonic() > patience:
                    self._process.kill()
        if self._stopped:
            return None
        progress.say(self._words.getvalue().rstrip())
        return self._passed

    def _run(self) -> None:
        if not self._turns.wait(self._turn):
            self._stopped = True
            return
        try:
            self._passed = _execute(self.step, self._needs, self._progress, self._take)
        finally:
            self._turns.end()

    def _take(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = process
            if self._stopped:
                process.send_signal(signal.SIGINT)


def _execute(step: Step, needs: _Needs, progress: Progress, started: Started | None = None) -> bool:
    """Run one step and return whether it passed; show the end of its output if it failed."""
    try:
        environment = needs.get(step.needs, progress)
        with progress.step(step.title):
            progress.run(
                step.command,
                env={**environment, **step.environment},
                cwd=ROOT,
                started=started,
            )
    except CommandFailed as err:
        progress.say("\n".join(err.output.splitlines()[-_TAIL:]))
        progress.say(f"Failed: {shlex.join(step.command)}")
        return False
    except ToolError as err:
        progress.say(str(err))
        return False
    return True


def prepare_need(need: str, progress: Progress) -> Mapping[str, str]:
    """Prepare a need of a step; return the environment variables that refer to it.

    Raises:
        ToolError: It cannot be prepared; the message names what is missing.
        ValueError: The need is unknown.
    """
    match need:
        case "assets":
            return {"KUBEBUILDER_ASSETS": str(ensure_assets(progress))}
        case "jvm":
            return {KIT_VARIABLE: str(ensure_kit(progress))}
        case "pulsar":
            return {ASSETS_VARIABLE: str(ensure_pulsar(progress))}
        case "helm":
            kustomize = str(ensure_tool("kustomize", progress).parent)
            return {
                "SLIPWAY_HELM": str(ensure_tool("helm", progress)),
                "PATH": os.pathsep.join([kustomize, os.environ.get("PATH", "")]),
            }
        case "prometheus":
            return {PROMETHEUS_VARIABLE: str(ensure_prometheus(progress))}
        case "images":
            # All together and before the steps: Pants runs one command at a time; tests are next.
            build_together(list_all_images(), progress=progress)
            return {BUILT_VARIABLE: "1"}
        case "cluster":
            ensure_docker(progress, Cache())
            up(progress=progress)
            return {}
        case _:
            raise ValueError(f"unknown need {need!r} of a step")
