"""Status of an Instance. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from libs.common.actions import Teardown
from libs.common.conditions import Condition, build_conditions
from libs.common.crd import ObjectReference
from libs.common.kinds import Manifest
from libs.contracts.images import Image
from operators.compute.api.directives import (
    Directive,
    DirectiveKind,
    DirectiveState,
    DirectiveStatus,
    DiskUse,
)
from operators.compute.api.disks import KeptDisk, RootDiskStatus
from operators.compute.api.instance import Instance, InstanceStatus, Phase, Power
from operators.compute.api.instancetypes import Instancetype, describe_size
from operators.compute.api.reasons import ConditionType, Reason
from operators.compute.images import explain_refused
from operators.compute.instance.boot import (
    evaluate_kept_disks,
    find_verified_boot,
    follow_kept_disks,
)
from operators.compute.instance.facts import (
    evaluate_address,
    evaluate_extras,
    evaluate_firewall,
    evaluate_network,
    evaluate_provisioned,
    evaluate_running,
)
from operators.compute.instance.observed import Observed, find_current_disk
from operators.compute.instance.record import read_record
from operators.compute.instance.sizing import (
    find_current_size,
    is_instancetype_missing,
    is_preference_missing,
)
from operators.compute.naming import firmware_uuid, mac_address

type Refusals = Mapping[StrEnum, str]
"""Error messages of the API server for failed steps, by the reason of their action."""

_BUSY: Final = {
    "Reboot": Phase.REBOOTING,
    "SoftReboot": Phase.REBOOTING,
    "Rebuild": Phase.REBUILDING,
    "Restore": Phase.REBUILDING,
    "Rescue": Phase.RESCUE,
    "Migrate": Phase.MIGRATING,
}
"""Phase while an Operation of a type is in progress."""
_FAILURES: Final = frozenset({Reason.CRASH_LOOP, Reason.START_FAILED, Reason.IMPORT_FAILED})


def build_status(
    instance: Instance, observed: Observed, refusals: Refusals, *, now: datetime
) -> Manifest:
    """Build the status of an Instance that is not being deleted.

    `observed` is the state after the steps of this reconcile, and `refusals` say which failed.
    """
    kept = follow_kept_disks(instance, observed, now)
    states = [*_evaluate(instance, observed), *evaluate_kept_disks(instance, kept)]
    ready = _evaluate_ready(instance, observed, states, refusals)
    phase = _find_phase(observed, [ready, *states])
    return _build(instance, observed, [ready, *states], phase, now, kept)


def build_final_status(
    instance: Instance, observed: Observed, ending: Teardown, refusals: Refusals, *, now: datetime
) -> Manifest:
    """Build the status of an Instance that is being deleted; see `build_status` for arguments."""
    message = "; ".join([ending.message, *dict.fromkeys(refusals.values())])
    conditions = [
        Condition.false(ConditionType.READY, Reason.TERMINATING, message),
        Condition.true(ConditionType.TERMINATING, ending.reason, message),
        *_evaluate(instance, observed),
    ]
    kept = instance.observed.kept_disks
    return _build(instance, observed, conditions, Phase.DELETING, now, kept)


def build_directive_status(
    instance: Instance, directive: Directive, observed: Observed
) -> DirectiveStatus:
    """Build the status of a directive."""
    if directive.kind is DirectiveKind.RESTART:
        ended = observed.run is None or observed.run.view.uid != directive.vmi_uid
        state = DirectiveState.DONE if ended else DirectiveState.IN_PROGRESS
        message = "" if ended else "the guest shuts down"
    else:
        image = directive.image or instance.spec.image
        state, message = _follow_disk(directive, observed, image)
    return DirectiveStatus(kind=directive.kind, token=directive.token, state=state, message=message)


def _follow_disk(
    directive: Directive, observed: Observed, image: Image
) -> tuple[DirectiveState, str]:
    disk = observed.disks.get(directive.disk or "")
    if disk is None:
        taken = [name for name in observed.foreign if name.endswith(f"/{directive.disk}")]
        if taken:
            return DirectiveState.FAILED, f"{taken[0]} belongs to another owner"
        if problem := explain_refused(image, observed.image_hosts):
            return DirectiveState.FAILED, f"the image is refused: {problem}"
        return DirectiveState.IN_PROGRESS, "the disk is being created"
    if disk.failed:
        return DirectiveState.FAILED, f"the disk cannot be filled: {disk.failure}"
    if not disk.filled:
        return DirectiveState.IN_PROGRESS, f"the disk {disk.filling}"
    if disk.name in observed.in_use:
        return DirectiveState.IN_PROGRESS, f"the disk {observed.in_use[disk.name]}"
    if directive.use is DiskUse.PREPARE:
        return DirectiveState.DONE, ""
    machine, run = observed.machine, observed.run
    if machine is None or machine.disk != directive.disk:
        return DirectiveState.IN_PROGRESS, "the machine is stopped to boot from the disk"
    off = run is None and not machine.kept_running
    if off or (run is not None and run.view.ready and run.disk == directive.disk):
        return DirectiveState.DONE, ""
    return DirectiveState.IN_PROGRESS, "the guest boots from the disk"


def _evaluate(instance: Instance, observed: Observed) -> list[Condition]:
    return [
        evaluate_provisioned(instance, observed),
        evaluate_network(instance, observed),
        evaluate_firewall(instance, observed),
        evaluate_address(instance, observed),
        evaluate_running(instance, observed),
        *evaluate_extras(instance, observed),
    ]


def _evaluate_ready(
    instance: Instance, observed: Observed, states: list[Condition], refusals: Refusals
) -> Condition:
    """Summarize the conditions; the first problem determines the reason."""
    problem = _find_problem(instance, observed, refusals)
    if problem is not None:
        return problem
    by_type = {state.type: state for state in states}
    running = by_type[ConditionType.RUNNING]
    if ConditionType.BLOCKED in by_type:
        return _not_ready(by_type[ConditionType.BLOCKED])
    if instance.spec.power is Power.STOPPED:
        if running.reason == Reason.STOPPED:
            return Condition.true(ConditionType.READY, Reason.STOPPED, running.message)
        return _not_ready(running)
    needed = [
        by_type[ConditionType.PROVISIONED],
        by_type[ConditionType.NETWORK_READY],
        by_type[ConditionType.FIREWALL_APPLIED],
        running,
        by_type[ConditionType.ADDRESS_READY],
    ]
    guest = by_type.get(ConditionType.GUEST_VERIFIED)
    if guest is not None and guest.status == "False":
        needed.append(guest)
    missing = next((state for state in needed if state.status != "True"), None)
    if missing is not None:
        return _not_ready(missing)
    if guest is not None and guest.reason in (Reason.NOT_VERIFIED, Reason.AGENT_LOST):
        message = f"{running.message}; {guest.message}"
        return Condition.true(ConditionType.READY, guest.reason, message)
    message = running.message
    if instance.spec.instancetype is None and observed.size is None:
        size = instance.spec.size
        message = f"{message}; InstanceSize {size} does not exist, and the machine keeps its size"
    return Condition.true(ConditionType.READY, Reason.RUNNING, message)


def _find_problem(instance: Instance, observed: Observed, refusals: Refusals) -> Condition | None:
    """Build Ready for what keeps the operator from acting; None if nothing does."""
    if observed.missing_apis:
        message = f"the cluster does not serve {', '.join(observed.missing_apis)}; install KubeVirt"
        return Condition.false(ConditionType.READY, Reason.API_MISSING, message)
    if observed.foreign:
        message = (
            f"{observed.foreign[0]} belongs to another owner and is not changed; rename one of them"
        )
        return Condition.false(ConditionType.READY, Reason.CONFLICT, message)
    if observed.disk_problem:
        return Condition.false(ConditionType.READY, Reason.DISK_MISSING, observed.disk_problem)
    if is_instancetype_missing(instance, observed):
        wanted = describe_size(instance.spec.size_ref)
        message = f"spec.instancetype: {wanted} does not exist; create it"
        return Condition.false(ConditionType.READY, Reason.INSTANCETYPE_MISSING, message)
    if is_preference_missing(instance, observed) and instance.spec.preference is not None:
        wanted = str(instance.spec.preference.matcher)
        message = f"spec.preference: {wanted} does not exist; create it"
        return Condition.false(ConditionType.READY, Reason.PREFERENCE_MISSING, message)
    kept = observed.machine is not None and instance.observed.size == instance.spec.size
    if instance.spec.instancetype is None and observed.size is None and not kept:
        message = f"spec.size: InstanceSize {instance.spec.size} does not exist; create it"
        return Condition.false(ConditionType.READY, Reason.SIZE_MISSING, message)
    if refusals:
        message = "; ".join(dict.fromkeys(refusals.values()))
        return Condition.false(ConditionType.READY, Reason.WRITE_FAILED, message)
    if observed.lacks_user_data:
        name = instance.spec.user_data_secret_name
        message = f"spec.userDataSecretName: Secret {name} does not exist; create it"
        return Condition.false(ConditionType.READY, Reason.USER_DATA_MISSING, message)
    if problems := [*_list_root_users(instance, observed), *observed.volumes.problems]:
        reason = Reason.DISK_IN_USE if observed.in_use else Reason.VOLUME_NOT_READY
        return Condition.false(ConditionType.READY, reason, "; ".join(problems))
    return None


def _list_root_users(instance: Instance, observed: Observed) -> list[str]:
    disk = find_current_disk(instance, observed)
    user = observed.in_use.get(disk)
    return [] if user is None else [f"the root disk {disk} {user}"]


def _not_ready(state: Condition) -> Condition:
    return Condition.false(ConditionType.READY, state.reason, state.message)


def _find_phase(observed: Observed, states: list[Condition]) -> Phase:
    """Return the phase, which summarizes the conditions."""
    by_type = {state.type: state for state in states}
    running = by_type[ConditionType.RUNNING]
    operation = observed.operation
    if operation is not None and operation.type in _BUSY:
        return _BUSY[operation.type]
    if observed.run is not None and observed.run.view.migrating:
        return Phase.MIGRATING
    if running.status == "True":
        return Phase.RUNNING
    if {running.reason, by_type[ConditionType.PROVISIONED].reason} & _FAILURES:
        return Phase.FAILED
    match running.reason:
        case Reason.STOPPED | Reason.GUEST_SHUT_DOWN:
            return Phase.STOPPED
        case Reason.STOPPING:
            return Phase.STOPPING
        case Reason.REBUILDING:
            return Phase.REBUILDING
        case Reason.PAUSED:
            return Phase.PAUSED
    if observed.machine is not None:
        return Phase.STARTING
    provisioned = by_type[ConditionType.PROVISIONED].status == "True"
    return Phase.PENDING if provisioned else Phase.PROVISIONING


def _build(
    instance: Instance,
    observed: Observed,
    conditions: list[Condition],
    phase: Phase,
    now: datetime,
    kept: list[KeptDisk],
) -> Manifest:
    seed, run, machine = read_record(instance).seed, observed.run, observed.machine
    held = observed.operation
    size = find_current_size(instance, observed)
    current = [condition.to_manifest() for condition in instance.observed.conditions]
    status = InstanceStatus(
        observed_generation=instance.metadata.generation,
        phase=phase,
        size=None if isinstance(size, Instancetype) else size,
        instancetype=size if isinstance(size, Instancetype) else None,
        vm_uid=None if machine is None else machine.view.uid,
        vmi_uid=None if run is None else run.view.uid,
        node_name=(run.view.node_name or None) if run is not None else None,
        root_disk=_show_disk(instance, observed),
        cloud_init_hash=instance.observed.cloud_init_hash,
        kept_disks=kept,
        verified_boot=find_verified_boot(instance, observed),
        mac_address=mac_address(seed),
        firmware_uuid=firmware_uuid(seed),
        private_ip=_find_private_ip(instance, observed),
        public_ip=_find_public_ip(instance, observed),
        operation=None if held is None else ObjectReference(name=held.key.name, uid=held.uid),
        directives=[
            build_directive_status(instance, held, observed) for held in instance.spec.directives
        ],
        message=conditions[0].message[:256],
    ).to_manifest()
    status["conditions"] = build_conditions(
        current, conditions, generation=instance.metadata.generation, now=now
    )
    return status


def _show_disk(instance: Instance, observed: Observed) -> RootDiskStatus | None:
    name = find_current_disk(instance, observed)
    disk = observed.disks.get(name)
    if disk is None:
        return instance.observed.root_disk
    return RootDiskStatus(name=name, uid=disk.uid)


def _find_public_ip(instance: Instance, observed: Observed) -> str | None:
    """Return the public address, unless its claim routes it to something else."""
    claim, name = observed.claim, instance.metadata.name
    return claim.address or None if claim and claim.target == f"Instance/{name}" else None


def _find_private_ip(instance: Instance, observed: Observed) -> str | None:
    """Return the allocated private address; a guest could report any address."""
    network = observed.network
    if network is not None and network.is_attached:
        claim = observed.private_claim
        return (claim.address or None) if claim is not None else None
    if observed.run is None:
        return None
    # The address is unknown for a moment after a migration; keep the last known one of this run.
    same = instance.observed.vmi_uid == observed.run.view.uid
    return observed.pod_address or (instance.observed.private_ip if same else None)
