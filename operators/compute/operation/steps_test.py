"""How a type begins on an Instance whose status is behind its run."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from libs.common.conditions import Condition, build_conditions
from operators.compute.api.instance import Instance
from operators.compute.api.operation import Operation, OperationPhase
from operators.compute.operation.observed import Observed, Target, Turn
from operators.compute.operation.requests import BASELINE
from operators.compute.operation.steps import take_step
from operators.compute.samples import build_instance, build_operation

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def begin_migration(run_uid: str, power: str = "Running") -> Turn:
    """Take the first step of a Migrate on an Instance that has said nothing of its run yet."""
    manifest = build_instance("web", power=power)
    manifest["metadata"] |= {"uid": "u1", "generation": 2}
    missing = Condition.false("Ready", "NetworkMissing", "there is no Network lan")
    manifest["status"] = {"conditions": build_conditions([], [missing], generation=2, now=NOW)}
    operation = build_operation("Migrate")
    operation["metadata"]["uid"] = "u2"
    operation["status"] = {"phase": OperationPhase.RUNNING, "step": BASELINE}
    target = Target(manifest, Instance.parse(manifest), run_uid)
    return take_step(Operation.parse(operation), target, Observed(target), NOW)


def test_migration_right_after_a_rebuild_waits_until_the_new_run_is_shown() -> None:
    turn = begin_migration("run-2")

    assert "outcome" not in turn.changes
    assert "waiting for the machine to run" in turn.message


@pytest.mark.parametrize(
    ("run_uid", "power", "why"),
    [("", "Running", "there is no Network lan"), ("run-1", "Stopped", "spec.power is Stopped")],
)
def test_machine_that_does_not_run_is_not_moved(run_uid: str, power: str, why: str) -> None:
    turn = begin_migration(run_uid, power)

    assert (turn.changes["outcome"], turn.changes["reason"]) == ("Failed", "NotRunning")
    assert turn.message == f"the machine does not run: {why}"
