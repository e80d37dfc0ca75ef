from __future__ import annotations

from pathlib import Path

from lab.sweep.journal import Journal
from lab.sweep.modes import Mode
from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan
from lab.sweep.triggers import Trigger

TRIGGER = Trigger("write", "create", "create", "pods", "web-pod-0")
PASSED = Plan("podset", "strict", Mode.K1, TRIGGER)
FAILED = Plan("podset", "strict", Mode.K2, TRIGGER)


def note_one(path: Path) -> None:
    journal = Journal(path, resume=False)
    journal.note(Outcome(PASSED, "ns", fired=True, seconds=2.5))


def test_resumed_sweep_recalls_what_passed_and_tries_again_what_failed(tmp_path: Path) -> None:
    note_one(tmp_path / "journal")

    resumed = Journal(tmp_path / "journal", resume=True)

    outcome = resumed.recall(PASSED)
    assert outcome is not None
    assert (outcome.fired, outcome.seconds) == (True, 2.5)
    assert resumed.recall(FAILED) is None


def test_new_sweep_recalls_nothing(tmp_path: Path) -> None:
    note_one(tmp_path / "journal")

    assert Journal(tmp_path / "journal", resume=False).recall(PASSED) is None
    assert Journal(tmp_path / "journal", resume=True).recall(PASSED) is None


def test_line_that_a_killed_sweep_left_unfinished_is_no_trial(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    note_one(path)
    with path.open("a") as file:
        file.write('{"plan": {"operator": "pod')

    Journal(path, resume=True).note(Outcome(FAILED, "ns", fired=True))
    resumed = Journal(path, resume=True)

    assert resumed.recall(PASSED) is not None
    assert resumed.recall(FAILED) is not None
