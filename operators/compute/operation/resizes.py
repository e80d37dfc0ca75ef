"""The steps of a Resize and its rollback. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from operators.compute.api.instance import Power
from operators.compute.api.instancetypes import Instancetype, SizeRef, describe_size
from operators.compute.api.operation import Facts, Operation, OperationReason
from operators.compute.api.reasons import ConditionType
from operators.compute.operation.observed import (
    NextAction,
    Observed,
    Target,
    fail,
    is_done,
    proceed,
    succeed,
    wait,
)
from operators.compute.operation.requests import (
    RESTART,
    SET_SIZE,
    WAIT_SIZE,
    build_restart,
    explain_rollback,
    explain_wait,
)
from operators.compute.operation.resources import set_directive, set_size


def resize(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    """Decide the next step of a Resize."""
    facts, wanted = operation.observed.facts, operation.spec.resize
    assert wanted is not None, "type Resize has it"
    size, name = wanted.size_ref, describe_size(wanted.size_ref)
    match operation.observed.step:
        case "Baseline":
            return _begin(target, observed, size)
        case "SetSize":
            actions = set_size(target, size)
            return wait(_explain_write(size), *actions) if actions else proceed(WAIT_SIZE)
        case "WaitSize":
            if _has_size(target, size):
                return succeed(f"the machine has {name}{_explain_disk(target)}")
            return _wait_for_size(operation, target, name, now)
        case _:
            directive = build_restart(operation, facts.restart_uid or "")
            ended = is_done(target.answer(directive)) and target.run_uid != facts.restart_uid
            if ended and _has_size(target, size):
                return succeed(f"the machine has {name} since its restart{_explain_disk(target)}")
            what = f"restarting the machine to have {name}"
            if target.run_uid == facts.restart_uid and target.resize_blocked:
                what = f"{what}: {target.resize_blocked}"
            what = explain_wait(target, what)
            return wait(what, *set_directive(target, directive))


def undo_resize(operation: Operation, target: Target) -> NextAction | None:
    """Restore the old size; None if the machine has it."""
    size = operation.observed.facts.old_size_ref or target.instance.spec.size_ref
    what = explain_rollback(operation, target)
    actions = set_size(target, size)
    if actions:
        return wait(what, *actions)
    if not target.current:
        return wait(what)
    off = target.instance.spec.power is Power.STOPPED and not target.run_uid
    held = target.instance.observed.size_ref == size and not target.resize_blocked
    if held and (off or target.runs):
        return None
    stuck = not target.runs or target.resize_refused
    if target.run_uid and stuck and not target.run_ending and not held:
        # The run was started with the new size, and may wait indefinitely for a node with enough
        # capacity.
        return wait(what, *set_directive(target, build_restart(operation, target.run_uid)))
    return wait(what)


def _begin(target: Target, observed: Observed, size: SizeRef) -> NextAction:
    """Record the old size, and fail if the new size can never be reached."""
    spec = target.instance.spec
    if not observed.size_known:
        what = size.matcher if isinstance(size, Instancetype) else f"InstanceSize {size}"
        return fail(OperationReason.SIZE_NOT_FOUND, f"{what} does not exist")
    if isinstance(size, Instancetype) and spec.root_disk.size is None:
        message = (
            "spec.rootDisk.size of the Instance is not set, and an instancetype has no size of a "
            "disk; set it to the size of the root disk"
        )
        return fail(OperationReason.DISK_SIZE_NOT_SET, message)
    before = Facts(
        vmi_uid=target.run_uid or None, old_size=spec.size, old_instancetype=spec.instancetype
    )
    return proceed(SET_SIZE, facts=before)


def _explain_disk(target: Target) -> str:
    held = target.holds(ConditionType.REBUILD_PENDING)
    return f"; {target.message(ConditionType.REBUILD_PENDING)}" if held else ""


def _explain_write(size: SizeRef) -> str:
    if isinstance(size, Instancetype):
        return f"setting spec.instancetype to {size.name}"
    return f"setting spec.size to {size}"


def _has_size(target: Target, size: SizeRef) -> bool:
    same = target.current and target.instance.observed.size_ref == size
    return same and not target.resize_blocked and (target.running or target.stopped)


def _wait_for_size(operation: Operation, target: Target, name: str, now: datetime) -> NextAction:
    """Wait until KubeVirt has changed the running guest; restart it if that fails or is slow."""
    wanted, since = operation.spec.resize, operation.observed.step_started_at or now
    patience = timedelta(seconds=0 if wanted is None else wanted.live_seconds)
    left = (since + patience - now).total_seconds()
    blocked = target.resize_blocked
    if target.current and target.run_uid and (target.resize_refused or left <= 0):
        uid = target.run_uid
        facts = operation.observed.facts.model_copy(update={"restart_uid": uid})
        return proceed(RESTART, f"restarting the machine to resize it: {blocked}", facts=facts)
    what = f"waiting for the machine to have {name}"
    what = f"{what}: {blocked}" if blocked else what
    return NextAction(message=explain_wait(target, what), look_again=max(left, 0.1))
