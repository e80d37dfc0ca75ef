"""Decides the next action of an Operation. Pure: no I/O, and the time is passed as an argument.

| crash after | existing state | action of the next process |
|---|---|---|
| the annotation was written | our UID, phase Pending | locks the Instance |
| the Lease was created | Lease with our UID, phase Pending | recognizes its Lease, continues |
| the facts were written | facts, no effect | acts on the facts |
| the directive was written | facts, directive | finds the directive, waits |
| the directive was executed | facts, directive and its status | reads the status, continues |
| the outcome was written | outcome, directive, Lease | withdraws the directive, unlocks, ends |
| the directive was withdrawn | outcome, Lease | unlocks, ends |
| the Lease was deleted | outcome | ends |

If a rollback fails, its directive remains: no disk is deleted, and the machine boots from the old
disk as soon as possible.

Two Operations never work on one Instance at the same time: the name of the Lease is derived from
the UID of the Instance, so only one of them can create it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from libs.common.actions import Action
from libs.common.plan import Delete
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE_MIGRATION
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT, MachineSnapshotView
from operators.compute.api.instancetypes import describe_size
from operators.compute.api.operation import (
    FINAL_PHASES,
    Operation,
    OperationPhase,
    OperationReason,
    OperationType,
    QueuePolicy,
)
from operators.compute.naming import BEGUN_AS, MADE_BY, lease_name
from operators.compute.operation.observed import (
    ROLL_BACK,
    NextAction,
    Observed,
    Target,
    end,
    fail,
    is_done,
    wait,
)
from operators.compute.operation.requests import (
    BASELINE,
    HOLD,
    PREPARE,
    RESTART,
    RETURN,
    SWAP,
    WAIT_RUNNING,
    build_boot,
    cause_of,
    explain_rollback,
    explain_wait,
)
from operators.compute.operation.resizes import undo_resize
from operators.compute.operation.resources import (
    drop_lock,
    record_begin,
    set_directive,
    take_lock,
    withdraw_directives,
)
from operators.compute.operation.steps import FIRST, take_step

_DISKS: Final = frozenset({OperationType.REBUILD, OperationType.RESTORE, OperationType.RESCUE})
"""Types that make the machine boot from another disk."""
_UNDONE: Final = _DISKS | {OperationType.RESIZE}
"""Types that are rolled back if they fail after a change."""
_ABORT_TIME: Final = timedelta(seconds=120)
"""Time after the deadline for KubeVirt to end a migration or a snapshot."""
_REBOOTS: Final = frozenset({OperationType.REBOOT, OperationType.SOFT_REBOOT})


def decide(operation: Operation, observed: Observed, now: datetime) -> NextAction:
    """Decide the next action of an Operation."""
    status = operation.observed
    if status.phase in FINAL_PHASES:
        return NextAction()
    if status.outcome is not None:
        return _finish(operation, observed, status.outcome, now)
    target = observed.target
    if is_copy(operation) and status.phase in (None, OperationPhase.PENDING):
        return _refuse_copy(operation, target)
    lost = _find_loss(operation, target)
    if lost is not None or target is None:
        return lost or NextAction()
    if status.phase in (None, OperationPhase.PENDING):
        return _accept(operation, target, observed, now)
    if status.phase is OperationPhase.ROLLING_BACK:
        return _roll_back(operation, target, now)
    return _run(operation, target, observed, now)


def is_copy(operation: Operation) -> bool:
    """Return whether this is a copy of an Operation that has begun or ended, as after a restore."""
    return operation.metadata.annotations.get(BEGUN_AS, operation.metadata.uid) != (
        operation.metadata.uid
    )


def is_cancelled(operation: Operation) -> bool:
    """Return whether the Operation should end early; deleting it cancels it as well."""
    return operation.spec.cancel or operation.metadata.is_deleting


def deadline_of(operation: Operation) -> datetime | None:
    """Return the time at which an Operation must end; None if it has not started."""
    started, rescue = operation.observed.started_at, operation.spec.rescue
    seconds = operation.spec.timeout_seconds + (0 if rescue is None else rescue.duration_seconds)
    return None if started is None else started + timedelta(seconds=seconds)


def _refuse_copy(operation: Operation, target: Target | None) -> NextAction:
    """End a copy, after withdrawing the directives that its original has left in the Instance."""
    original = operation.metadata.annotations[BEGUN_AS]
    message = f"the Operation has UID {original} in annotation {BEGUN_AS} and has begun before"
    actions = () if target is None else withdraw_directives(target, original)
    if actions:
        return wait(message, *actions)
    return end(OperationPhase.CANCELLED, OperationReason.COPIED, message)


def _find_loss(operation: Operation, target: Target | None) -> NextAction | None:
    name = operation.spec.target_ref.name
    known = operation.observed.target_uid or operation.spec.target_ref.uid
    if target is None:
        message = f"spec.targetRef: Instance {name} does not exist"
        return fail(OperationReason.TARGET_NOT_FOUND, message)
    if known and target.uid != known:
        message = (
            f"Instance {name} has UID {target.uid} instead of {known}: it was recreated, or"
            " spec.targetRef.uid is wrong"
        )
        return fail(OperationReason.TARGET_NOT_FOUND, message)
    if target.instance.metadata.is_deleting:
        return fail(OperationReason.TARGET_DELETING, f"Instance {name} is being deleted")
    return None


def _accept(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    """Wait until no other Operation comes first, then lock the Instance."""
    if is_cancelled(operation):
        return end(OperationPhase.CANCELLED, OperationReason.CANCELLED, "before it began")
    lock = observed.lock
    ours = lock is not None and lock.holder == operation.metadata.uid
    if observed.before and not ours:
        first = observed.before[0]
        if operation.spec.queue is QueuePolicy.FAIL_IF_BUSY:
            return fail(OperationReason.BUSY, f"Operation {first} is in progress on the Instance")
        position = len(observed.before)
        changes = {"phase": OperationPhase.PENDING, "queue_position": position}
        return NextAction(changes, message=f"waiting for Operation {first}")
    if lock is None:
        begin = record_begin(operation)
        return wait("locking the Instance", *(begin or (take_lock(operation, target),)))
    if not ours:
        if lock.alive:
            return NextAction({"phase": OperationPhase.PENDING}, message="waiting for the Lease")
        # The holder no longer exists and has not released the Lease, for example after a forced
        # deletion.
        return wait(
            "taking over the Lease of an Operation that no longer exists",
            drop_lock(operation, target.uid, lock),
        )
    changes = {
        "phase": OperationPhase.RUNNING,
        "step": FIRST[operation.spec.type],
        "target_uid": target.uid,
        "lease_name": lease_name(target.uid),
        "started_at": now,
        "queue_position": None,
    }
    return NextAction(changes, message="has locked the Instance", again=True)


def _run(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    deadline = deadline_of(operation) or now
    if is_cancelled(operation) or now >= deadline:
        # What was started in KubeVirt ends first. KubeVirt may never end it, so this has a limit.
        end_by = deadline + _ABORT_TIME
        abort = _abort(operation, observed)
        if abort is not None and now < end_by:
            return _with_timer(abort, end_by, now, target)
    if is_cancelled(operation) and now < deadline:
        stopped = _cancel(operation, target, observed)
        if stopped is not None:
            return stopped
    if now >= deadline:
        message = (
            f"{operation.spec.timeout_seconds} s were not enough for {operation.observed.step}"
        )
        if _abort(operation, observed) is not None:
            message += _explain_abort(observed)
        return _give_up(operation, OperationReason.DEADLINE_EXCEEDED, explain_wait(target, message))
    ready = _ready_deadline(operation)
    if ready is not None and now >= ready:
        message = "the machine was not ready in time on its new disk"
        return _give_up(operation, OperationReason.DEADLINE_EXCEEDED, explain_wait(target, message))
    turn = take_step(operation, target, observed, now)
    soonest = min(deadline, ready) if ready is not None else deadline
    return _with_timer(turn, soonest, now, target)


def _cancel(operation: Operation, target: Target, observed: Observed) -> NextAction | None:
    """Cancel the Operation if possible; None if the current step must be completed."""
    kind, step = operation.spec.type, operation.observed.step
    message = "by spec.cancel" if operation.spec.cancel else "by its deletion"
    if kind in _REBOOTS and step in (RESTART, WAIT_RUNNING):
        facts = operation.observed.facts
        untouched = step == RESTART and target.run_uid == facts.vmi_uid and not target.run_ending
        if not untouched:
            # The run was ended already, and the machine starts again in any case.
            return None
    if kind is OperationType.RESCUE and step in (HOLD, RETURN):
        # For a rescue, cancelling is the normal end.
        return None
    if kind is OperationType.SNAPSHOT and observed.snapshot is not None:
        if _is_own_snapshot(operation, observed.snapshot):
            return None
        return _give_up(operation, OperationReason.CANCELLED, "before the snapshot was taken")
    migration = observed.migration
    if kind is OperationType.MIGRATE and migration is not None and migration.succeeded:
        return None
    return _give_up(operation, OperationReason.CANCELLED, message)


def _abort(operation: Operation, observed: Observed) -> NextAction | None:
    """End the migration or the snapshot of an Operation; None if nothing is in progress."""
    migration, snapshot = observed.migration, observed.snapshot
    if migration is not None and not migration.final:
        delete = Delete(VIRTUAL_MACHINE_INSTANCE_MIGRATION, migration.key, migration.uid)
        actions = () if migration.deleting else (Action(delete, OperationReason.CANCELLED),)
        message = "waiting for the migration to be cancelled"
        if observed.held_up:
            message += f"; {observed.held_up}"
        return wait(message, *actions)
    if snapshot is not None and _is_own_snapshot(operation, snapshot) and not snapshot.ready:
        delete = Delete(MACHINE_SNAPSHOT, snapshot.key, snapshot.uid)
        actions = () if snapshot.deleting else (Action(delete, OperationReason.CANCELLED),)
        return wait("waiting for the snapshot to be cancelled", *actions)
    return None


def _is_own_snapshot(operation: Operation, held: MachineSnapshotView) -> bool:
    return held.annotations.get(MADE_BY) == operation.metadata.uid


def _explain_abort(observed: Observed) -> str:
    """Explain what to do if KubeVirt does not end what it was asked to end."""
    migration = observed.migration
    if migration is None:
        return "; KubeVirt does not end the snapshot, see its Events"
    pod = "" if migration.state is None else migration.state.target_pod
    named = f"pod {pod}" if pod else f"the target pod of migration {migration.key.name}"
    return f"; KubeVirt does not end the migration; delete {named}"


def _give_up(operation: Operation, reason: OperationReason, message: str) -> NextAction:
    """End without success, after rolling back changes if the type supports it."""
    changed = operation.observed.step not in (BASELINE, PREPARE)
    if operation.spec.type in _UNDONE and changed:
        changes = {
            "phase": OperationPhase.ROLLING_BACK,
            "step": ROLL_BACK,
            "reason": str(reason),
        }
        return NextAction(changes, message=message, again=True)
    cancelled = reason is OperationReason.CANCELLED
    outcome = OperationPhase.CANCELLED if cancelled else OperationPhase.FAILED
    return end(outcome, reason, message)


def _roll_back(operation: Operation, target: Target, now: datetime) -> NextAction:
    status = operation.observed
    cancelled = status.reason == OperationReason.CANCELLED
    begun = status.step_started_at or now
    deadline = begun + timedelta(seconds=operation.spec.timeout_seconds)
    if now >= deadline:
        message = explain_wait(
            target, "the previous state of the Instance could not be restored; check the Instance"
        )
        return fail(OperationReason.ROLLBACK_FAILED, message)
    rebuild = operation.spec.type in _DISKS
    undo = _undo_rebuild if rebuild else undo_resize
    turn = undo(operation, target)
    if turn is not None:
        return _with_timer(turn, deadline, now, target)
    what = f"disk {status.facts.old_disk}" if rebuild else describe_size(status.facts.old_size_ref)
    if cancelled:
        return end(OperationPhase.CANCELLED, OperationReason.CANCELLED, f"back on {what}")
    return fail(OperationReason.ROLLED_BACK, f"back on {what}: {cause_of(operation)}"[:1024])


def _undo_rebuild(operation: Operation, target: Target) -> NextAction | None:
    """Make the machine boot from the old disk again; None if it does."""
    disk = operation.observed.facts.old_disk or ""
    directive = build_boot(operation, disk)
    if is_done(target.answer(directive)) and (target.runs or target.stopped):
        return None
    return wait(explain_rollback(operation, target), *set_directive(target, directive))


def _finish(
    operation: Operation, observed: Observed, outcome: OperationPhase, now: datetime
) -> NextAction:
    """Withdraw directives, unlock the Instance, and only then end.

    The order matters: if the Lease were deleted first, the next Operation could start while the
    Instance still follows a directive of this one.
    """
    target, lock = observed.target, observed.lock
    message = operation.observed.message
    if target is not None and target.uid == operation.observed.target_uid:
        actions = withdraw_directives(target, operation.metadata.uid)
        if actions and not _leaves_directive(operation):
            return wait(message, *actions)
    held = operation.observed.target_uid
    if lock is not None and lock.holder == operation.metadata.uid:
        uid = held or (target.uid if target is not None else "")
        return wait(message, drop_lock(operation, uid, lock))
    if begin := record_begin(operation):
        return wait(message, *begin)
    changes = {"phase": outcome, "outcome": None, "finished_at": now, "queue_position": None}
    return NextAction(changes, message=message)


def _leaves_directive(operation: Operation) -> bool:
    """Return whether the directive to boot from the old disk remains after the Operation.

    Without the directive, a machine that finally boots from the other disk would count as verified,
    and its old disk would be deleted.
    """
    stuck = operation.observed.reason == OperationReason.ROLLBACK_FAILED
    return stuck and operation.spec.type in _DISKS


def _ready_deadline(operation: Operation) -> datetime | None:
    """Return the time at which a rebuilt machine must be ready; None for no deadline."""
    begun = operation.observed.step_started_at
    if operation.spec.type not in _DISKS or operation.observed.step != SWAP:
        return None
    return None if begun is None else begun + timedelta(seconds=operation.spec.ready_seconds)


def _with_timer(turn: NextAction, deadline: datetime, now: datetime, target: Target) -> NextAction:
    seconds = max((deadline - now).total_seconds(), 0.1)
    if target.address_wait:
        seconds = min(seconds, target.address_wait + 0.1)
    soonest = seconds if turn.look_again is None else min(seconds, turn.look_again)
    return replace(turn, look_again=soonest)
