"""Directives of Operations to an Instance, and the names of the steps. Pure."""

from __future__ import annotations

from typing import Final

from libs.contracts.images import Image
from operators.compute.api.directives import Directive, DirectiveKind, DiskUse
from operators.compute.api.operation import Operation, OperationReason
from operators.compute.api.reasons import ConditionType
from operators.compute.operation.observed import NextAction, Target, fail

BASELINE: Final = "Baseline"
"""Record the initial state."""
SET_POWER: Final = "SetPower"
WAIT_RUNNING: Final = "WaitRunning"
WAIT_STOPPED: Final = "WaitStopped"
RESTART: Final = "Restart"
PREPARE: Final = "Prepare"
"""A new disk is filled while the machine runs; nothing has changed yet."""
SWAP: Final = "Swap"
SET_SIZE: Final = "SetSize"
WAIT_SIZE: Final = "WaitSize"
MOVE: Final = "Move"
ASK: Final = "Ask"
"""The guest is asked to reboot."""
TAKE: Final = "Take"
"""KubeVirt takes the snapshot."""
HOLD: Final = "Hold"
"""The machine runs from the rescue disk."""
RETURN: Final = "Return"
"""The machine goes back to its own disk."""
_NOW: Final = "; now: "
"""Separates the cause of a rollback from the current problem."""


def build_restart(operation: Operation, uid: str) -> Directive:
    """Build the directive that ends one run."""
    return Directive(kind=DirectiveKind.RESTART, token=operation.metadata.uid, vmi_uid=uid)


def build_boot(operation: Operation, disk: str, use: DiskUse = DiskUse.BOOT) -> Directive:
    """Build the directive to create a disk, or to boot from it."""
    facts = operation.observed.facts
    rescue = operation.spec.rescue is not None and disk == facts.new_disk
    return Directive(
        kind=DirectiveKind.ROOT_DISK,
        token=operation.metadata.uid,
        disk=disk,
        image=find_image(operation),
        use=use,
        attach=facts.old_disk if rescue else None,
    )


def find_image(operation: Operation) -> Image | None:
    """Return the source of a new disk; None for the image of the Instance."""
    if operation.observed.facts.volume_snapshot is not None:
        return Image(snapshot=operation.observed.facts.volume_snapshot)
    wanted = operation.spec.rescue or operation.spec.rebuild
    return None if wanted is None else wanted.image


def explain_wait(target: Target, what: str) -> str:
    """Return a message about a wait, with the problem that the Instance reports."""
    problem = _find_problem(target)
    return f"{what}; {problem}" if problem else what


def explain_rollback(operation: Operation, target: Target) -> str:
    """Return the cause of a rollback, with the problem that the Instance reports now.

    The message holds the cause from one reconcile to the next, so an earlier problem is replaced.
    """
    cause, problem = cause_of(operation), _find_problem(target)
    return f"{cause}{_NOW}{problem}" if problem and problem not in cause else cause


def cause_of(operation: Operation) -> str:
    """Return the cause of a rollback."""
    return operation.observed.message.partition(_NOW)[0]


def _find_problem(target: Target) -> str:
    if target.holds(ConditionType.BLOCKED):
        return target.message(ConditionType.BLOCKED)
    if target.start_problem:
        return target.start_problem
    if target.obstacle:
        return target.obstacle
    if target.address_wait:
        return target.message(ConditionType.ADDRESS_READY)
    if target.runs and target.is_false(ConditionType.GUEST_VERIFIED):
        return target.message(ConditionType.GUEST_VERIFIED)
    return ""


def refuse_stopped(target: Target) -> NextAction:
    """Fail an Operation that needs a running machine, and report why the machine does not run."""
    why = "spec.power is Stopped"
    if target.powered:
        why = target.message(ConditionType.READY) if target.is_false(ConditionType.READY) else ""
    message = f"the machine does not run: {why}" if why else "the machine does not run"
    return fail(OperationReason.NOT_RUNNING, message)
