"""Rebuild, Restore and Rescue: the machine boots from another root disk. Pure.

The new disk is filled while the machine runs. Then the machine is halted, its template gets the new
disk, and the machine starts. The old disk is not changed or deleted before that.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from operators.compute.api.directives import DiskUse
from operators.compute.api.operation import Facts, Operation, OperationReason
from operators.compute.naming import rebuilt_disk_name
from operators.compute.operation.observed import (
    NextAction,
    Observed,
    Target,
    fail,
    is_done,
    is_failed,
    proceed,
    succeed,
    wait,
)
from operators.compute.operation.requests import (
    BASELINE,
    HOLD,
    PREPARE,
    RETURN,
    SWAP,
    build_boot,
    explain_wait,
)
from operators.compute.operation.resources import set_directive


def rebuild(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    """Boot from a newly filled disk."""
    match operation.observed.step:
        case "Baseline":
            return _begin(operation, target, Facts())
        case "Prepare":
            return _prepare(operation, target)
        case _:
            return _swap(operation, target) or _finish(operation, target)


def restore(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    """Boot from a disk that is created from a snapshot.

    VirtualMachineRestore of KubeVirt is not used: it writes the template of the machine, which must
    have this operator as its only writer, and the machine would have to be off during the copy.
    """
    if operation.observed.step != BASELINE:
        return rebuild(operation, target, observed, now)
    name = "" if operation.spec.restore is None else operation.spec.restore.snapshot
    found = observed.restorable
    if found is None or not found.ready:
        state = "no VirtualMachineSnapshot" if found is None else "an unfinished snapshot"
        return fail(OperationReason.SNAPSHOT_NOT_FOUND, f"spec.restore.snapshot: {state} {name}")
    if not found.volume_snapshot:
        message = f"spec.restore.snapshot: {name} has no root disk in it"
        return fail(OperationReason.SNAPSHOT_NOT_FOUND, message)
    return _begin(operation, target, Facts(volume_snapshot=found.volume_snapshot))


def rescue(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    """Boot temporarily from another disk, with the root disk attached for repair."""
    facts = operation.observed.facts
    match operation.observed.step:
        case "Baseline":
            return _begin(operation, target, Facts())
        case "Prepare":
            return _prepare(operation, target)
        case "Swap":
            return _swap(operation, target) or proceed(HOLD)
        case "Hold":
            return _hold(operation, target, now)
        case _:
            directive = build_boot(operation, facts.old_disk or "")
            if is_done(target.answer(directive)) and (target.runs or target.stopped):
                return succeed(f"the machine boots from its own disk {facts.old_disk} again")
            what = explain_wait(target, f"waiting for the machine to run from {facts.old_disk}")
            return wait(what, *set_directive(target, directive))


def _begin(operation: Operation, target: Target, facts: Facts) -> NextAction:
    disk = target.instance.observed.root_disk
    if disk is None:
        return wait("waiting for the Instance to have a root disk")
    new = rebuilt_disk_name(target.instance.metadata.name, operation.metadata.uid)
    seen = {"vmi_uid": target.run_uid or None, "old_disk": disk.name, "new_disk": new}
    return proceed(PREPARE, facts=facts.model_copy(update=seen))


def _prepare(operation: Operation, target: Target) -> NextAction:
    disk = operation.observed.facts.new_disk or ""
    directive = build_boot(operation, disk, DiskUse.PREPARE)
    answer = target.answer(directive)
    if is_failed(answer) and answer is not None:
        return fail(OperationReason.DISK_FAILED, f"the machine is as before: {answer.message}")
    if is_done(answer):
        return proceed(SWAP)
    what = f"filling disk {disk}{' while the machine runs' if target.run_uid else ''}"
    if answer is not None and answer.message:
        what = f"{what}: {answer.message}"
    return wait(what, *set_directive(target, directive))


def _swap(operation: Operation, target: Target) -> NextAction | None:
    """Make the machine boot from the new disk; None if it does."""
    disk = operation.observed.facts.new_disk or ""
    directive = build_boot(operation, disk)
    if is_done(target.answer(directive)) and (target.running or target.stopped):
        return None
    what = explain_wait(target, f"waiting for the machine to run from {disk}")
    return wait(what, *set_directive(target, directive))


def _finish(operation: Operation, target: Target) -> NextAction:
    """Succeed, and report whether it is verified that the guest boots from the new disk."""
    facts = operation.observed.facts
    verb = "will boot" if target.stopped else "boots"
    message = f"the machine {verb} from disk {facts.new_disk}"
    if target.verified:
        return succeed(message)
    reason = str(OperationReason.UNVERIFIED)
    message = f"{message}; nothing has shown that its guest boots, so disk {facts.old_disk} is kept"
    done = succeed(message)
    return replace(done, changes={**done.changes, "reason": reason})


def _hold(operation: Operation, target: Target, now: datetime) -> NextAction:
    """Keep the rescue system running until its time is over or the user sets spec.cancel."""
    wanted, facts = operation.spec.rescue, operation.observed.facts
    since = operation.observed.step_started_at or now
    seconds = 0 if wanted is None else wanted.duration_seconds
    left = (since + timedelta(seconds=seconds) - now).total_seconds()
    if left <= 0 or operation.spec.cancel or operation.metadata.is_deleting:
        return proceed(RETURN)
    state = f"the machine runs from {facts.new_disk}"
    if target.stopped:
        state = f"the machine is off; set spec.power to Running to boot it from {facts.new_disk}"
    message = f"{state}; {facts.old_disk} is attached to it; set spec.cancel when it is repaired"
    return NextAction(message=message, look_again=left)
