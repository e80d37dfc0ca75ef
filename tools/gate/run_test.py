"""Steps of the gate, run as real processes."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress
from tools.gate.__main__ import parse_options
from tools.gate.counts import Counts
from tools.gate.run import Run
from tools.gate.steps import Step, build_steps, choose_steps

_MEET = """
import pathlib, sys, time
mine, other = map(pathlib.Path, sys.argv[1:])
mine.touch()
end = time.monotonic() + 120
while not other.exists():
    assert time.monotonic() < end, f"{other} never came"
    time.sleep(0.01)
"""


def say(name: str, text: str, code: int = 0, *, in_background: bool = False) -> Step:
    script = f"print({text!r}); raise SystemExit({code})"
    return Step(name, name.title(), (sys.executable, "-c", script), in_background=in_background)


def meet(name: str, other: str, folder: Path, *, in_background: bool = False) -> Step:
    command = (sys.executable, "-c", _MEET, str(folder / name), str(folder / other))
    return Step(name, name.title(), command, in_background=in_background)


def prepare(need: str, progress: Progress) -> Mapping[str, str]:
    if need == "gold":
        raise ToolError("no gold: dig for it")
    progress.say(f"making {need}")
    return {"MADE": need}


class Gate:
    """A gate whose words are kept."""

    def __init__(self, folder: Path) -> None:
        self.words = io.StringIO()
        self.progress = Progress(folder / "log", Console(file=self.words, width=200))

    def run(self, *steps: Step, keep_going: bool = False) -> dict[str, bool]:
        results = Run(self.progress, keep_going=keep_going, prepare=prepare).run(steps)
        assert all(result.counts != Counts() for result in results)
        return {result.step.name: result.passed for result in results}


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_step_beside_runs_while_the_next_one_does(gate: Gate, tmp_path: Path) -> None:
    first = meet("e2e", "unit", tmp_path, in_background=True)
    assert gate.run(first, meet("unit", "e2e", tmp_path)) == {"unit": True, "e2e": True}


def test_failure_beside_is_told_with_its_words(gate: Gate) -> None:
    result = gate.run(say("e2e", "pod is lost", 1, in_background=True), say("unit", "fine"))
    assert result == {"unit": True, "e2e": False}
    assert "pod is lost" in gate.words.getvalue()


def test_failure_ends_the_run_and_stops_what_runs_beside(gate: Gate, tmp_path: Path) -> None:
    script = """
import pathlib, sys, time
pathlib.Path(sys.argv[1], "e2e").touch()
try:
    time.sleep(600)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[1], "tidy").touch()
"""
    endless = Step("e2e", "E2E", (sys.executable, "-c", script, str(tmp_path)), in_background=True)
    begun = meet("lint", "e2e", tmp_path)

    assert gate.run(endless, begun, say("unit", "wrong", 1), say("plain", "")) == {
        "lint": True,
        "unit": False,
    }
    assert (tmp_path / "tidy").exists()


def test_two_steps_run_in_the_background_and_the_others_in_order(
    gate: Gate, tmp_path: Path
) -> None:
    """Step 0 lasts until step 2 has ended; each step starts after all but one of those before."""
    script = """
import pathlib, sys, time
number, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
assert len(list(folder.glob("*.ended"))) >= number - 1, "it has started too early"
end = time.monotonic() + 120
while number == 0 and not (folder / "2.ended").exists():
    assert time.monotonic() < end, "step 2 never ran while step 0 did"
    time.sleep(0.01)
(folder / f"{number}.ended").touch()
"""
    steps = [
        Step(name, name, (sys.executable, "-c", script, name, str(tmp_path)), in_background=True)
        for name in "01234"
    ]

    assert all(gate.run(*steps, say("unit", "fine")).values())


def test_failure_starts_no_step_that_waits_for_its_turn(gate: Gate, tmp_path: Path) -> None:
    script = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"
    touch = (sys.executable, "-c", script, str(tmp_path / "started"))
    steps = (
        meet("e2e", "never", tmp_path, in_background=True),
        meet("broker", "never", tmp_path, in_background=True),
        Step("keda", "Keda", touch, in_background=True),
        meet("lint", "e2e", tmp_path),
        say("unit", "wrong", 1),
        say("plain", ""),
    )

    assert gate.run(*steps) == {"lint": True, "unit": False}
    assert not (tmp_path / "started").exists()


def test_failure_beside_is_known_without_a_failure_of_the_rest(gate: Gate) -> None:
    steps = (say("e2e", "", in_background=True), say("unit", "wrong", 1), say("plain", ""))
    assert gate.run(*steps, keep_going=True) == {"unit": False, "plain": True, "e2e": True}


def test_step_whose_needs_cannot_be_made_fails(gate: Gate) -> None:
    step = Step("shine", "Shine", (sys.executable, "-c", ""), needs=("gold",))
    assert gate.run(step) == {"shine": False}
    assert "dig for it" in gate.words.getvalue()


def test_what_several_steps_need_is_made_once(gate: Gate) -> None:
    script = "import os; print('made of', os.environ['MADE'])"
    steps = [
        Step(
            name,
            name.title(),
            (sys.executable, "-c", f"{script}; raise SystemExit(1)"),
            needs=("clay",),
        )
        for name in ("bowl", "jug")
    ]

    gate.run(*steps, keep_going=True)

    assert gate.words.getvalue().count("making clay") == 1
    assert gate.words.getvalue().count("made of clay") == 2


def test_step_of_every_night_runs_with_all() -> None:
    steps = build_steps("python")

    assert "upgrade" not in [step.name for step in choose_steps(steps)]
    assert "upgrade" in [step.name for step in choose_steps(steps, everything=True)]


def test_step_that_needs_a_cluster_of_the_user_runs_only_if_it_is_named() -> None:
    steps = build_steps("python")

    assert "e2e-kubevirt" not in [step.name for step in choose_steps(steps, everything=True)]
    assert [step.name for step in choose_steps(steps, ["e2e-kubevirt"])] == ["e2e-kubevirt"]


def test_steps_keep_their_order_and_skipped_ones_are_left_out() -> None:
    steps = build_steps("python")

    assert [step.name for step in choose_steps(steps, ["unit", "lint"])] == ["lint", "unit"]
    assert [step.name for step in choose_steps(steps, ["unit", "lint"], ["lint"])] == ["unit"]


def test_later_steps_run_while_a_step_in_the_background_prepares_what_it_needs(
    tmp_path: Path,
) -> None:
    progress = Progress(tmp_path / "log", Console(file=io.StringIO()))
    linted = threading.Event()

    def prepare(need: str, progress: Progress) -> Mapping[str, str]:
        assert linted.wait(60), "the next step never ran"
        return {}

    class Lint(Run):
        def _evaluate(self, step: Step, *, passed: bool) -> None:
            linted.set()
            super()._evaluate(step, passed=passed)

    slow = Step("e2e", "E2E", (sys.executable, "-c", ""), needs=("clay",), in_background=True)
    results = Lint(progress, prepare=prepare).run([slow, say("lint", ""), say("unit", "")])

    assert all(result.passed for result in results)


def test_option_that_is_repeated_adds_steps() -> None:
    options = parse_options(build_steps("python"), ["--only", "unit", "lint", "--only", "charts"])

    assert options.only == ["unit", "lint", "charts"]
