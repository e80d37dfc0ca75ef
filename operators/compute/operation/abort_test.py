"""An Operation that is late or cancelled ends what KubeVirt does for it, within a limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.common.conditions import render_time
from libs.common.kinds import Kind
from libs.common.plan import Delete
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE_MIGRATION
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT, MachineSnapshotView
from libs.contracts.migrations import MigrationView
from operators.compute.api.instance import Instance
from operators.compute.api.operation import Operation, OperationPhase
from operators.compute.naming import MADE_BY
from operators.compute.operation.observed import NextAction, Observed, Target
from operators.compute.operation.reconcile import decide
from operators.compute.samples import build_instance, build_operation

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPES = ("Migrate", "Snapshot")


def act(type_: str, *, after: float, ending: bool = False, **spec: Any) -> NextAction:
    """Decide on an Operation with a limit of 10 s, while KubeVirt still works for it.

    Args:
        type_: Type of the Operation.
        after: Seconds since it began.
        ending: Whether KubeVirt was asked to end its work.
        spec: Further fields of its spec.
    """
    manifest = build_instance("web")
    manifest["metadata"] |= {"uid": "u1", "generation": 1}
    operation = build_operation(type_, timeoutSeconds=10, **spec)
    operation["metadata"]["uid"] = "u2"
    operation["status"] = {
        "phase": OperationPhase.RUNNING,
        "step": "Move" if type_ == "Migrate" else "Snapshot",
        "targetUID": "u1",
        "startedAt": render_time(NOW - timedelta(seconds=after)),
        "facts": {"vmiUID": "run-1", "nodeName": "node-a"},
    }
    metadata: dict[str, Any] = {"name": "work", "namespace": "default", "uid": "w"}
    if ending:
        metadata["deletionTimestamp"] = render_time(NOW)
    observed = Observed(Target(manifest, Instance.parse(manifest), "run-1"))
    if type_ == "Migrate":
        state = {"targetPod": "virt-launcher-web-2", "sourcePod": "virt-launcher-web-1"}
        status = {"phase": "PreparingTarget", "migrationState": state}
        migration = MigrationView.parse({"metadata": metadata, "status": status})
        observed = Observed(observed.target, migration=migration, held_up="networks fail")
    else:
        metadata["annotations"] = {MADE_BY: "u2"}
        begun = {"phase": "InProgress", "readyToUse": False}
        snapshot = MachineSnapshotView.parse({"metadata": metadata, "status": begun})
        observed = Observed(observed.target, snapshot=snapshot)
    return decide(Operation.parse(operation), observed, NOW)


def deleted(turn: NextAction) -> list[tuple[Kind, str]]:
    steps = [action.step for action in turn.actions]
    return [(step.kind, step.uid) for step in steps if isinstance(step, Delete)]


@pytest.mark.parametrize(("after", "spec"), [(11, {}), (1, {"cancel": True})])
@pytest.mark.parametrize("type_", TYPES)
def test_work_of_kubevirt_ends_before_its_operation(
    type_: str, after: float, spec: dict[str, Any]
) -> None:
    kind = VIRTUAL_MACHINE_INSTANCE_MIGRATION if type_ == "Migrate" else MACHINE_SNAPSHOT

    turn = act(type_, after=after, **spec)

    assert "outcome" not in turn.changes, "the next Operation would meet the work in progress"
    assert deleted(turn) == [(kind, "w")]
    assert "to be cancelled" in turn.message
    again = act(type_, after=after, ending=True, **spec)
    assert (deleted(again), "outcome" in again.changes) == ([], False)
    assert again.look_again is not None


@pytest.mark.parametrize("spec", [{}, {"cancel": True}], ids=["over its time", "cancelled"])
@pytest.mark.parametrize("type_", TYPES)
def test_work_that_kubevirt_never_ends_blocks_no_other_operation(
    type_: str, spec: dict[str, Any]
) -> None:
    assert "outcome" not in act(type_, after=129, ending=True, **spec).changes

    turn = act(type_, after=131, ending=True, **spec)

    assert (turn.changes["outcome"], turn.changes["reason"]) == ("Failed", "DeadlineExceeded")
    assert "KubeVirt does not end the" in turn.message
    assert ("delete pod virt-launcher-web-2" in turn.message) is (type_ == "Migrate")


def test_cancelled_migration_that_waits_says_what_holds_it_up() -> None:
    assert "networks fail" in act("Migrate", after=1, ending=True, cancel=True).message
