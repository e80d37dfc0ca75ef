"""How a type begins on an Instance whose status is behind its run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from libs.common.conditions import Condition, build_conditions, render_time
from libs.contracts.migrations import MigrationView
from operators.compute.api.instance import Instance
from operators.compute.api.operation import Operation, OperationPhase
from operators.compute.operation.observe import seconds_for_address
from operators.compute.operation.observed import NextAction, Observed, Target
from operators.compute.operation.requests import BASELINE, explain_wait
from operators.compute.operation.steps import take_step
from operators.compute.samples import build_instance, build_operation

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def begin_migration(run_uid: str, power: str = "Running") -> NextAction:
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


def test_migration_of_a_guest_that_shut_itself_down_fails_at_once() -> None:
    """A wait would keep the Start that is queued behind it from booting the guest."""
    manifest = build_instance("web")
    manifest["metadata"] |= {"uid": "u1", "generation": 1}
    off = [
        Condition.false(type_, "GuestShutDown", "the guest shut itself down")
        for type_ in ("Ready", "Running")
    ]
    conditions = build_conditions([], off, generation=1, now=NOW)
    manifest["status"] = {"vmiUID": "run-1", "observedGeneration": 1, "conditions": conditions}
    operation = build_operation("Migrate")
    operation["metadata"]["uid"] = "u2"
    operation["status"] = {"phase": OperationPhase.RUNNING, "step": BASELINE}
    target = Target(manifest, Instance.parse(manifest), "run-1")

    turn = take_step(Operation.parse(operation), target, Observed(target), NOW)

    assert (turn.changes["outcome"], turn.changes["reason"]) == ("Failed", "NotRunning")
    assert "shut itself down" in turn.message


@pytest.mark.parametrize(("seconds", "waits"), [(0, True), (29, True), (30, False), (900, False)])
def test_address_that_does_not_follow_holds_an_operation_up_for_a_short_time(
    seconds: float, waits: bool
) -> None:
    """Ipam may not run at all, and then nothing would ever end."""
    manifest = build_instance("web")
    manifest["metadata"] |= {"uid": "u1", "generation": 1}
    held = [
        Condition.true("Running", "Running"),
        Condition.false("AddressReady", "AddressUnbound", "the address is not routed yet"),
    ]
    conditions = build_conditions([], held, generation=1, now=NOW)
    manifest["status"] = {"vmiUID": "run-1", "observedGeneration": 1, "conditions": conditions}

    left = seconds_for_address(manifest, NOW + timedelta(seconds=seconds))
    target = Target(manifest, Instance.parse(manifest), "run-1", address_wait=left)

    assert target.runs is not waits
    assert explain_wait(target, "waiting").endswith("routed yet") is waits


def fail_migration(
    seconds: float, reason: str = "", message: str = "", phase: str = "Failed"
) -> NextAction:
    """Look at a Migrate some seconds after KubeVirt gave up its migration."""
    manifest = build_instance("web")
    manifest["metadata"] |= {"uid": "u1", "generation": 2}
    operation = build_operation("Migrate")
    operation["metadata"]["uid"] = "u2"
    facts = {"vmiUID": "run-1", "nodeName": "node-a"}
    operation["status"] = {"phase": OperationPhase.RUNNING, "step": "Move", "facts": facts}
    operation["status"]["message"] = message
    at = render_time(NOW - timedelta(seconds=seconds))
    status = {
        "phase": phase,
        "phaseTransitionTimestamps": [{"phase": "Failed", "phaseTransitionTimestamp": at}],
        "migrationState": {"failureReason": reason} if reason else {},
    }
    migration = MigrationView.parse({"metadata": {"name": "m"}, "status": status})
    target = Target(manifest, Instance.parse(manifest), "run-1")
    observed = Observed(target, migration=migration)
    return take_step(Operation.parse(operation), target, observed, NOW)


def test_migration_whose_target_pod_is_gone_keeps_the_reason_until_kubevirt_gives_up() -> None:
    """KubeVirt deletes a pod that no node can run, then fails the migration without a reason."""
    message = (
        "waiting for the guest to leave node-a; KubeVirt cannot move it yet: no node can run it"
    )

    gone = fail_migration(0, message=message, phase="Scheduling")
    failed = fail_migration(0, message=gone.message)

    assert gone.message == message
    assert failed.message == "the machine stays on node-a: no node can run it"
    assert failed.changes["reason"] == "MigrationFailed"


def test_failed_migration_is_not_final_before_kubevirt_gave_its_reason() -> None:
    """KubeVirt writes the phase first and the reason with its next write."""
    early, reported, silent = fail_migration(1), fail_migration(1, "no socket"), fail_migration(11)

    assert "outcome" not in early.changes
    assert early.message == "waiting for KubeVirt to say why the migration failed"
    assert early.look_again == 9
    assert (reported.changes["outcome"], reported.message) == (
        "Failed",
        "the machine stays on node-a: no socket",
    )
    assert silent.message == "the machine stays on node-a: KubeVirt gives no reason"


RESIZE_OP = build_operation("Resize", resize={"size": "large", "liveSeconds": 60})
BLOCKED = "KubeVirt changes a running guest by moving it, and cannot move this one: no"
REFUSED = "KubeVirt cannot change the running guest: another CPU hotplug is in progress"


def resize(*conditions: Condition, seconds: float = 0, size: str = "small") -> NextAction:
    """Take the step in which a Resize waits for the guest, some seconds after it began."""
    manifest = build_instance("web", size="large")
    manifest["metadata"] |= {"uid": "u1", "generation": 2}
    stated = [Condition.true("Running", "Running"), Condition.true("AddressReady", "NotRequested")]
    manifest["status"] = {
        "observedGeneration": 2,
        "size": size,
        "vmiUID": "run-1",
        "conditions": build_conditions([], [*stated, *conditions], generation=2, now=NOW),
    }
    operation = {**RESIZE_OP, "metadata": {**RESIZE_OP["metadata"], "uid": "u2"}}
    operation["status"] = {
        "phase": OperationPhase.RUNNING,
        "step": "WaitSize",
        "stepStartedAt": NOW.isoformat(),
    }
    target = Target(manifest, Instance.parse(manifest), "run-1")
    later = NOW + timedelta(seconds=seconds)
    return take_step(Operation.parse(operation), target, Observed(target), later)


def test_resize_ends_when_the_guest_has_the_size() -> None:
    assert resize(size="large").changes["outcome"] == "Succeeded"
    pending = Condition.true("ResizePending", "HotplugInProgress", "KubeVirt is changing it")

    turn = resize(pending, size="large")

    assert "outcome" not in turn.changes
    assert turn.message == "waiting for the machine to have size large: KubeVirt is changing it"
    assert turn.look_again == 60


@pytest.mark.parametrize(
    "condition",
    [
        Condition.true("ResizePending", "HotplugBlocked", BLOCKED),
        Condition.true("ResizePending", "HotplugRefused", REFUSED),
        Condition.true("RestartRequired", "RestartRequired", "a change takes effect later"),
    ],
    ids=["no migration", "another hotplug", "restart required"],
)
def test_resize_restarts_a_machine_that_kubevirt_cannot_change(condition: Condition) -> None:
    turn = resize(condition)

    assert turn.changes["step"] == "Restart"
    assert turn.changes["facts"].restart_uid == "run-1"
    assert turn.message == f"restarting the machine to resize it: {condition.message}"


def test_resize_restarts_a_machine_that_kubevirt_changes_too_slowly() -> None:
    assert "step" not in resize(seconds=59).changes
    assert resize(seconds=60).changes["step"] == "Restart"


def test_rescue_of_a_machine_that_no_node_can_run_says_so() -> None:
    manifest = build_instance("web")
    manifest["metadata"] |= {"uid": "u1", "generation": 2}
    words = "KubeVirt says ErrorUnschedulable: 0/3 nodes are available"
    running = Condition.false("Running", "StartFailed", words)
    manifest["status"] = {"conditions": build_conditions([], [running], generation=2, now=NOW)}
    operation = build_operation("Rescue", rescue={"image": {"url": "https://example.com/i.img"}})
    operation["metadata"]["uid"] = "u2"
    facts = {"oldDisk": "web-root", "newDisk": "web-root-2"}
    operation["status"] = {"phase": OperationPhase.RUNNING, "step": "Swap", "facts": facts}
    target = Target(manifest, Instance.parse(manifest), "run-2")

    turn = take_step(Operation.parse(operation), target, Observed(target), NOW)

    assert "outcome" not in turn.changes
    assert turn.message == f"waiting for the machine to run from web-root-2; {words}"
