"""Journal: the passed trials, so that an interrupted sweep continues."""

from __future__ import annotations

import json
from pathlib import Path

from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan


class Journal:
    """A journal of the passed trials of an operator; failed trials are run again.

    Args:
        path: Path of the file, with one trial per line.
        resume: Whether to continue the file of an earlier run.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        """Read the file, or start a new one."""
        self._path = path
        self._passed: dict[Plan, Outcome] = {}
        if not resume:
            path.unlink(missing_ok=True)
        elif path.exists():
            # A run that was killed during a write leaves an incomplete line.
            whole, end, _ = path.read_text().rpartition("\n")
            path.write_text(whole + end)
            outcomes = map(_read, whole.splitlines())
            self._passed = {outcome.plan: outcome for outcome in outcomes}

    def recall(self, plan: Plan) -> Outcome | None:
        """Return the outcome of a passed trial; None if it must be run."""
        return self._passed.get(plan)

    def note(self, outcome: Outcome) -> None:
        """Append a trial that passed."""
        entry = {"plan": outcome.plan.to_json(), "seconds": round(outcome.seconds, 2)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def _read(line: str) -> Outcome:
    entry = json.loads(line)
    # In a trial that passed, the fault was injected.
    return Outcome(Plan.from_json(entry["plan"]), "", fired=True, seconds=entry["seconds"])
