"""The steps of each type of Operation; pure.

A step is a function of the facts that were written down and of what is seen, never of what was done
before in this process. So the same step decided twice, by two processes, asks for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from libs.common.actions import Action
from libs.common.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE_MIGRATION
from libs.common.plan import Create
from operators.compute.api.instance import Directive, DirectiveKind, DiskUse, Power
from operators.compute.api.operation import (
    Facts,
    Operation,
    OperationReason,
    OperationType,
)
from operators.compute.api.reasons import ConditionType
from operators.compute.naming import rebuilt_disk_name
from operators.compute.operation.observed import (
    Observed,
    Target,
    Turn,
    fail,
    is_done,
    is_failed,
    proceed,
    succeed,
    wait,
)
from operators.compute.operation.resources import build_migration, set_directive, set_field

BASELINE: Final = "Baseline"
SET_POWER: Final = "SetPower"
WAIT_RUNNING: Final = "WaitRunning"
WAIT_STOPPED: Final = "WaitStopped"
RESTART: Final = "Restart"
PREPARE: Final = "Prepare"
SWAP: Final = "Swap"
SET_SIZE: Final = "SetSize"
WAIT_SIZE: Final = "WaitSize"
MOVE: Final = "Move"

FIRST: Final[Mapping[OperationType, str]] = {
    OperationType.START: SET_POWER,
    OperationType.STOP: SET_POWER,
    OperationType.REBOOT: BASELINE,
    OperationType.REBUILD: BASELINE,
    OperationType.RESIZE: BASELINE,
    OperationType.MIGRATE: BASELINE,
}
"""The step that each type begins with."""


def take_step(operation: Operation, target: Target, observed: Observed) -> Turn:
    """Decide what an Operation that has its Instance does next."""
    return _TYPES[operation.spec.type](operation, target, observed)


def build_restart(operation: Operation, uid: str) -> Directive:
    """Build the directive that ends one run."""
    return Directive(kind=DirectiveKind.RESTART, token=operation.metadata.uid, vmi_uid=uid)


def build_boot(operation: Operation, disk: str, use: DiskUse = DiskUse.BOOT) -> Directive:
    """Build the directive to make a disk, or to boot from it."""
    wanted = operation.spec.rebuild
    image = None if wanted is None else wanted.image
    token = operation.metadata.uid
    return Directive(kind=DirectiveKind.ROOT_DISK, token=token, disk=disk, image=image, use=use)


def explain_wait(target: Target, what: str) -> str:
    """Say what is waited for, and what the Instance says is amiss."""
    if target.holds(ConditionType.BLOCKED):
        return f"{what}; {target.message(ConditionType.BLOCKED)}"
    return what


def _start(operation: Operation, target: Target, observed: Observed) -> Turn:
    if operation.observed.step == SET_POWER:
        actions = set_field(target, "power", Power.RUNNING)
        if actions:
            return wait("setting spec.power to Running", *actions)
        return proceed(WAIT_RUNNING)
    if target.settled and target.running:
        return succeed("the machine runs")
    return wait(explain_wait(target, "waiting for the machine to run"))


def _stop(operation: Operation, target: Target, observed: Observed) -> Turn:
    if operation.observed.step == SET_POWER:
        actions = set_field(target, "power", Power.STOPPED)
        if actions:
            return wait("setting spec.power to Stopped", *actions)
        return proceed(WAIT_STOPPED)
    if target.stopped:
        return succeed("the machine is off")
    return wait(explain_wait(target, "waiting for the guest to shut down"))


def _reboot(operation: Operation, target: Target, observed: Observed) -> Turn:
    facts = operation.observed.facts
    match operation.observed.step:
        case "Baseline":
            if not target.powered or not target.run_uid:
                return fail(OperationReason.NOT_RUNNING, "the machine does not run")
            # Written down before anything is done: only this very run is ever ended.
            return proceed(RESTART, facts=Facts(vmi_uid=target.run_uid))
        case "Restart":
            directive = build_restart(operation, facts.vmi_uid or "")
            if is_done(target.answer(directive)):
                return proceed(WAIT_RUNNING)
            what = explain_wait(target, f"waiting for run {facts.vmi_uid} to end")
            return wait(what, *set_directive(target, directive))
        case _:
            if target.running and target.run_uid != facts.vmi_uid:
                return succeed("the machine runs again")
            return wait(explain_wait(target, "waiting for the machine to run again"))


def _rebuild(operation: Operation, target: Target, observed: Observed) -> Turn:
    facts = operation.observed.facts
    match operation.observed.step:
        case "Baseline":
            disk = target.instance.observed.root_disk
            if disk is None:
                return wait("waiting for the Instance to have a root disk")
            new = rebuilt_disk_name(target.instance.metadata.name, operation.metadata.uid)
            run = target.run_uid or None
            return proceed(PREPARE, facts=Facts(vmi_uid=run, old_disk=disk.name, new_disk=new))
        case "Prepare":
            directive = build_boot(operation, facts.new_disk or "", DiskUse.PREPARE)
            answer = target.answer(directive)
            if is_failed(answer) and answer is not None:
                return fail(
                    OperationReason.DISK_FAILED, f"the machine is as before: {answer.message}"
                )
            if is_done(answer):
                return proceed(SWAP)
            what = f"filling disk {facts.new_disk} while the machine runs"
            return wait(what, *set_directive(target, directive))
        case _:
            directive = build_boot(operation, facts.new_disk or "")
            if is_done(target.answer(directive)) and (target.running or target.stopped):
                return succeed(f"the machine boots from disk {facts.new_disk}")
            what = explain_wait(target, f"waiting for the machine to run from {facts.new_disk}")
            return wait(what, *set_directive(target, directive))


def _resize(operation: Operation, target: Target, observed: Observed) -> Turn:
    facts, wanted = operation.observed.facts, operation.spec.resize
    size = "" if wanted is None else wanted.size
    match operation.observed.step:
        case "Baseline":
            if not observed.size_known:
                return fail(OperationReason.SIZE_NOT_FOUND, f"there is no InstanceSize {size}")
            before = Facts(vmi_uid=target.run_uid or None, old_size=target.instance.spec.size)
            return proceed(SET_SIZE, facts=before)
        case "SetSize":
            actions = set_field(target, "size", size)
            return wait(f"setting spec.size to {size}", *actions) if actions else proceed(WAIT_SIZE)
        case "WaitSize":
            if _has_size(target, size):
                return succeed(f"the machine has size {size}")
            if target.settled and target.holds(ConditionType.RESTART_REQUIRED) and target.run_uid:
                changed = facts.model_copy(update={"restart_uid": target.run_uid})
                return proceed(RESTART, facts=changed)
            return wait(explain_wait(target, f"waiting for the machine to have size {size}"))
        case _:
            directive = build_restart(operation, facts.restart_uid or "")
            ended = is_done(target.answer(directive)) and target.run_uid != facts.restart_uid
            if ended and _has_size(target, size):
                return succeed(f"the machine has size {size} since its restart")
            what = explain_wait(target, f"restarting the machine to have size {size}")
            return wait(what, *set_directive(target, directive))


def _has_size(target: Target, size: str) -> bool:
    same = target.settled and target.instance.observed.size == size
    restart = target.holds(ConditionType.RESTART_REQUIRED)
    return same and not restart and (target.running or target.stopped)


def _migrate(operation: Operation, target: Target, observed: Observed) -> Turn:
    facts = operation.observed.facts
    node = target.instance.observed.node_name
    if operation.observed.step == BASELINE:
        if not target.running:
            return fail(OperationReason.NOT_RUNNING, "the machine does not run")
        if target.is_false(ConditionType.MIGRATABLE):
            message = target.message(ConditionType.MIGRATABLE)
            return fail(OperationReason.NOT_MIGRATABLE, f"KubeVirt cannot move it: {message}")
        return proceed(MOVE, facts=Facts(vmi_uid=target.run_uid, node_name=node))
    if target.run_uid != facts.vmi_uid:
        return fail(OperationReason.MIGRATION_FAILED, "the machine ended while it was moved")
    migration = observed.migration
    moved = target.running and node is not None and node != facts.node_name
    # A migration that is collected, or not seen any more, is told by where the guest is.
    if moved and (migration is None or migration.final):
        return succeed(f"the machine moved from {facts.node_name} to {node}")
    if migration is None:
        step = Create(VIRTUAL_MACHINE_INSTANCE_MIGRATION, build_migration(operation))
        action = Action(step, OperationReason.IN_PROGRESS)
        return wait("asking KubeVirt to move the guest", action)
    if migration.final and not migration.succeeded:
        why = migration.state.failure_reason if migration.state is not None else ""
        message = f"the machine stays on {facts.node_name}: {why or 'KubeVirt does not say why'}"
        return fail(OperationReason.MIGRATION_FAILED, message)
    return wait(explain_wait(target, f"waiting for the guest to leave {facts.node_name}"))


_TYPES: Final[Mapping[OperationType, Callable[[Operation, Target, Observed], Turn]]] = {
    OperationType.START: _start,
    OperationType.STOP: _stop,
    OperationType.REBOOT: _reboot,
    OperationType.REBUILD: _rebuild,
    OperationType.RESIZE: _resize,
    OperationType.MIGRATE: _migrate,
}
