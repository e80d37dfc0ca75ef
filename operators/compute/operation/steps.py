"""The steps of each type of Operation. Pure.

A step depends only on the recorded facts and the observed state, never on earlier actions of this
process. So if two processes decide the same step, they request the same actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from libs.common.actions import Action
from libs.common.plan import Create
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE_MIGRATION
from operators.compute.api.instance import Power
from operators.compute.api.operation import (
    Facts,
    Operation,
    OperationReason,
    OperationType,
)
from operators.compute.api.reasons import ConditionType
from operators.compute.operation.disks import rebuild, rescue, restore
from operators.compute.operation.observed import (
    NextAction,
    Observed,
    Target,
    fail,
    proceed,
    succeed,
    wait,
)
from operators.compute.operation.reboots import reboot, soft_reboot
from operators.compute.operation.requests import (
    BASELINE,
    MOVE,
    RESTART,
    SET_POWER,
    WAIT_RUNNING,
    WAIT_STOPPED,
    explain_wait,
    refuse_stopped,
)
from operators.compute.operation.resizes import resize
from operators.compute.operation.resources import build_migration, set_field
from operators.compute.operation.snapshots import snapshot

type _Step = Callable[[Operation, Target, Observed, datetime], NextAction]

_REASON_PATIENCE: Final = timedelta(seconds=10)
"""Time to wait for the reason of a failed migration, which KubeVirt adds with its next write."""
_HELD_UP: Final = "; KubeVirt cannot move it yet: "
"""Precedes the reason for which a migration does not begin, in the message."""

FIRST: Final[Mapping[OperationType, str]] = {
    OperationType.START: SET_POWER,
    OperationType.STOP: SET_POWER,
    OperationType.REBOOT: BASELINE,
    OperationType.REBUILD: BASELINE,
    OperationType.RESIZE: BASELINE,
    OperationType.MIGRATE: BASELINE,
    OperationType.SOFT_REBOOT: BASELINE,
    OperationType.SNAPSHOT: BASELINE,
    OperationType.RESTORE: BASELINE,
    OperationType.RESCUE: BASELINE,
}
"""First step of each type."""


def take_step(
    operation: Operation, target: Target, observed: Observed, now: datetime
) -> NextAction:
    """Decide the next action of an Operation that has locked its Instance."""
    return _TYPES[operation.spec.type](operation, target, observed, now)


def _start(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    if operation.observed.step == SET_POWER:
        actions = set_field(target, "power", Power.RUNNING)
        if actions:
            return wait("setting spec.power to Running", *actions)
        if target.shut_down:
            # The ended run keeps the machine off until it is deleted.
            return proceed(RESTART, facts=Facts(vmi_uid=target.run_uid))
        return proceed(WAIT_RUNNING)
    if operation.observed.step == RESTART:
        return reboot(operation, target, observed, now)
    if target.current and target.running:
        return succeed("the machine runs")
    return wait(explain_wait(target, "waiting for the machine to run"))


def _stop(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    if operation.observed.step == SET_POWER:
        actions = set_field(target, "power", Power.STOPPED)
        if actions:
            return wait("setting spec.power to Stopped", *actions)
        return proceed(WAIT_STOPPED)
    if target.stopped:
        return succeed("the machine is off")
    return wait(explain_wait(target, "waiting for the guest to shut down"))


def _migrate(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    facts = operation.observed.facts
    node = target.instance.observed.node_name
    if operation.observed.step == BASELINE:
        if not target.powered or not target.run_uid or target.shut_down:
            return refuse_stopped(target)
        if not target.running:
            # For example right after a Rebuild: the status of the Instance does not contain the
            # new run yet.
            return wait(explain_wait(target, "waiting for the machine to run"))
        if target.is_false(ConditionType.MIGRATABLE):
            message = target.message(ConditionType.MIGRATABLE)
            return fail(OperationReason.NOT_MIGRATABLE, f"KubeVirt cannot move it: {message}")
        return proceed(MOVE, facts=Facts(vmi_uid=target.run_uid, node_name=node))
    if target.run_uid != facts.vmi_uid:
        return fail(OperationReason.MIGRATION_FAILED, "the machine stopped during its migration")
    migration = observed.migration
    moved = target.running and node is not None and node != facts.node_name
    # If the migration object no longer exists, the node of the guest shows the result.
    if moved and (migration is None or migration.final):
        return succeed(f"the machine moved from {facts.node_name} to {node}")
    if migration is None:
        step = Create(VIRTUAL_MACHINE_INSTANCE_MIGRATION, build_migration(operation))
        action = Action(step, OperationReason.IN_PROGRESS)
        return wait("asking KubeVirt to migrate the guest", action)
    if migration.final and not migration.succeeded:
        why = migration.state.failure_reason if migration.state is not None else ""
        why = why or _held_up_before(operation)
        ended = migration.ended_at
        left = 0 if ended is None else (ended + _REASON_PATIENCE - now).total_seconds()
        if not why and left > 0:
            what = "waiting for KubeVirt to say why the migration failed"
            return NextAction(message=explain_wait(target, what), look_again=left)
        message = f"the machine stays on {facts.node_name}: {why or 'KubeVirt gives no reason'}"
        return fail(OperationReason.MIGRATION_FAILED, message)
    what = f"waiting for the guest to leave {facts.node_name}"
    held_up = _held_up_before(operation) if observed.held_up is None else observed.held_up
    return wait(f"{what}{_HELD_UP}{held_up}" if held_up else explain_wait(target, what))


def _held_up_before(operation: Operation) -> str:
    """Return what the message said of a migration that could not begin.

    KubeVirt deletes the target pod before it gives up, and then gives no reason.
    """
    return operation.observed.message.partition(_HELD_UP)[2]


_TYPES: Final[Mapping[OperationType, _Step]] = {
    OperationType.START: _start,
    OperationType.STOP: _stop,
    OperationType.REBOOT: reboot,
    OperationType.REBUILD: rebuild,
    OperationType.RESIZE: resize,
    OperationType.MIGRATE: _migrate,
    OperationType.SOFT_REBOOT: soft_reboot,
    OperationType.SNAPSHOT: snapshot,
    OperationType.RESTORE: restore,
    OperationType.RESCUE: rescue,
}
