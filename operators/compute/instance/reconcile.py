"""What to do next for an Instance; pure: no input or output, no clock.

Each plan is a function of what was seen, so a crash between any two steps is one more thing to see.
A change of the root disk takes several passes: the machine is halted; once KubeVirt has ended it,
its template gets the other disk while it is still halted; then it may run again. Whichever of these
a crash follows, the machine itself says how far it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.actions import Action
from libs.common.contracts.cdi import DATA_VOLUME
from libs.common.contracts.ip_claims import IP_CLAIM
from libs.common.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from libs.common.kinds import SECRET, Key, Kind, Manifest, describe, key_of, uid_of
from libs.common.plan import Apply, Create, Delete, Patch
from operators.compute.api.directives import DirectiveKind
from operators.compute.api.instance import RESCUED, DeletionMode, Instance, Power, PublicIPMode
from operators.compute.api.reasons import Reason
from operators.compute.instance.observed import (
    Capacity,
    Observed,
    find_boot,
    find_current_disk,
    find_wanted_disk,
    has_network,
    is_protected,
)
from operators.compute.instance.resources import (
    build_cloud_init,
    build_disk,
    build_machine,
    build_public_claim,
)
from operators.compute.marks import build_mark_patch, build_release_patch, is_ours
from operators.compute.naming import public_claim_name


@dataclass(frozen=True, slots=True)
class Decision:
    """Say what the machine is to be.

    Attributes:
        disk: Root disk of its template.
        run: Whether KubeVirt is to keep it running.
    """

    disk: str
    run: bool


def plan_instance(instance: Instance, observed: Observed) -> tuple[Action, ...]:
    """Decide what brings the machine in line with the spec, one step after the other."""
    if observed.missing_apis:
        return ()
    return (
        *_plan_disks(instance, observed),
        *_plan_settings(instance),
        *_plan_machine(instance, observed),
        *_plan_restart(instance, observed),
        *_plan_address(instance, observed),
        *_plan_marks(instance, observed),
        *_plan_retirement(instance, observed),
    )


def decide_machine(instance: Instance, observed: Observed) -> Decision:
    """Decide what the machine is to boot from, and whether it is to run.

    A machine that runs is never stopped for what it should have waited for: that is told by
    conditions, and counts again at its next start.
    """
    current, wanted = (
        find_current_disk(instance, observed),
        find_wanted_disk(instance, observed),
    )
    machine = observed.machine
    if machine is not None and current != wanted:
        return Decision(wanted if machine.halted and observed.run is None else current, run=False)
    if instance.spec.power is Power.STOPPED:
        return Decision(current, run=False)
    running = machine is not None and machine.kept_running
    return Decision(current, run=running or may_start(instance, observed))


def may_start(instance: Instance, observed: Observed) -> bool:
    """Tell whether nothing is missing that a machine needs before it may start."""
    disk = observed.disks.get(find_current_disk(instance, observed))
    return (
        disk is not None
        and disk.usable
        and not disk.deleting
        and has_network(instance, observed)
        and is_protected(instance, observed)
        and not observed.volumes.problems
    )


def find_capacity(observed: Observed) -> Capacity | None:
    """Find how much the machine has: by its size, else as before."""
    if observed.size is not None:
        return observed.size
    return None if observed.machine is None else observed.machine.capacity


def _plan_disks(instance: Instance, observed: Observed) -> list[Action]:
    """Make the disk that the machine boots from, and the one that a directive asks for."""
    actions = []
    wanted = {find_current_disk(instance, observed): instance.spec.image}
    directive = instance.spec.directive(DirectiveKind.ROOT_DISK)
    if directive is not None and directive.disk is not None:
        wanted.setdefault(directive.disk, directive.image or instance.spec.image)
    uid = instance.metadata.uid
    for name, image in wanted.items():
        sized = bool(instance.spec.root_disk.size or observed.disk_size)
        if name in observed.disks or not sized:
            continue
        manifest = build_disk(instance, name, image, observed.disk_size)
        step = Create(DATA_VOLUME, manifest, ours=lambda held: is_ours(held, uid))
        held = instance.observed.root_disk
        if held is not None and held.name == name:
            note = f"Created {describe(DATA_VOLUME, step.key)} anew; the one before is gone"
            actions.append(Action(step, Reason.DISK_REPLACED, note, warning=True))
        else:
            note = f"Created {describe(DATA_VOLUME, step.key)} from {image}"
            actions.append(Action(step, Reason.DISK_CREATED, note))
    return actions


def _plan_settings(instance: Instance) -> list[Action]:
    if instance.spec.user_data_secret_name is not None:
        return []
    return [Action(Apply(SECRET, build_cloud_init(instance)), Reason.WRITE_FAILED)]


def _plan_machine(instance: Instance, observed: Observed) -> list[Action]:
    capacity = find_capacity(observed)
    machine = observed.machine
    if capacity is None or (machine is not None and machine.view.deleting):
        return []
    if machine is None and (not may_start(instance, observed) or observed.foreign):
        # A machine that cannot start yet is not made: what it is made of may still change.
        return []
    decision = decide_machine(instance, observed)
    network = observed.network
    manifest = build_machine(
        instance,
        capacity,
        decision.disk,
        _choose_claims(instance, observed, decision.disk),
        "" if network is None else network.attachment,
        run=decision.run,
    )
    return [Action(Apply(VIRTUAL_MACHINE, manifest), Reason.START_FAILED)]


def _choose_claims(instance: Instance, observed: Observed, disk: str) -> dict[str, str]:
    """Choose the claims of the further volumes: one that is not ready stays as it was."""
    held = {} if observed.machine is None else observed.machine.claims
    found = {
        volume.name: observed.volumes.claims.get(volume.name, held.get(volume.name, ""))
        for volume in instance.spec.volumes
    }
    directive = find_boot(instance)
    if directive is not None and directive.disk == disk and directive.attach is not None:
        found[RESCUED] = directive.attach
    return {name: claim for name, claim in found.items() if claim}


def _plan_restart(instance: Instance, observed: Observed) -> list[Action]:
    directive = instance.spec.directive(DirectiveKind.RESTART)
    run = observed.run
    if directive is None or run is None or run.view.deleting:
        return []
    if run.view.uid != directive.vmi_uid:
        # Another run than the one that was to end: done already, perhaps before a crash.
        return []
    # The UID makes it happen once: a restart that KubeVirt is asked for by name would end
    # whatever runs when the request arrives, a second time after a lost answer.
    step = Delete(VIRTUAL_MACHINE_INSTANCE, run.view.key, run.view.uid)
    return [Action(step, Reason.RESTARTED, f"Ended the run {run.view.uid}")]


def _plan_address(instance: Instance, observed: Observed) -> list[Action]:
    public = instance.spec.public_ip
    name = public_claim_name(instance.metadata.name)
    uid = instance.metadata.uid
    if public.mode is PublicIPMode.AUTO:
        if observed.claim is not None:
            return []
        step = Create(IP_CLAIM, build_public_claim(instance), ours=lambda held: is_ours(held, uid))
        return [Action(step, Reason.ADDRESS_PENDING, f"Created {describe(IP_CLAIM, step.key)}")]
    held = observed.claim_manifest
    if held is None or key_of(held).name != name or not is_ours(held, uid):
        return []
    # The mode was Auto before. A claim of mode Claim is the user's own, and this may become it.
    if public.mode is PublicIPMode.CLAIM and public.claim_name == name:
        return [release(IP_CLAIM, held, uid)]
    return [_delete_address(instance, uid_of(held))]


def release(kind: Kind, held: Manifest, uid: str) -> Action:
    """Have an object stay that belonged to the Instance of a UID, as nobody's."""
    operations = build_release_patch(held, uid)
    version = held["metadata"].get("resourceVersion", "")
    step = Patch(kind, key_of(held), uid_of(held), operations, resource_version=version)
    name = describe(kind, key_of(held))
    return Action(step, Reason.KEPT, f"Kept {name}, which belongs to nobody now")


def _delete_address(instance: Instance, uid: str) -> Action:
    key = Key(instance.metadata.namespace, public_claim_name(instance.metadata.name))
    note = f"Deleting {describe(IP_CLAIM, key)}"
    return Action(Delete(IP_CLAIM, key, uid), Reason.WITHDRAWING_ADDRESS, note)


def _plan_marks(instance: Instance, observed: Observed) -> list[Action]:
    """Follow a change of the deletion policy in what children say of whose they are."""
    policy = instance.spec.deletion_policy
    targets = [
        (disk.kind, disk.manifest, policy.root_disk)
        for disk in observed.disks.values()
        if not disk.deleting and disk.kind == DATA_VOLUME
    ]
    claim = observed.claim_manifest
    auto = instance.spec.public_ip.mode is PublicIPMode.AUTO
    if auto and claim is not None and is_ours(claim, instance.metadata.uid):
        targets.append((IP_CLAIM, claim, policy.public_ip))
    actions = []
    for kind, held, mode in targets:
        operations = build_mark_patch(held, instance, owned=mode is DeletionMode.DELETE)
        if operations:
            version = held["metadata"].get("resourceVersion", "")
            step = Patch(kind, key_of(held), uid_of(held), operations, resource_version=version)
            actions.append(Action(step, Reason.KEPT))
    return actions


def _plan_retirement(instance: Instance, observed: Observed) -> list[Action]:
    """Delete root disks that are used no more.

    A directive keeps all disks: whoever wrote it may yet want to go back. So does an Operation that
    is at work, whose directive somebody may have removed. Without them a disk goes when the machine
    is seen to do without it.
    """
    kept = instance.spec.directive(DirectiveKind.ROOT_DISK) is not None or observed.operation
    if kept or observed.machine is None:
        return []
    current = observed.machine.disk
    run = observed.run
    off = run is None and instance.spec.power is Power.STOPPED and observed.machine.halted
    proven = run is not None and run.view.ready and run.disk == current
    if not (off or proven) or current not in observed.disks:
        return []
    return [
        Action(
            Delete(disk.kind, key_of(disk.manifest), disk.uid),
            Reason.DISK_RETIRED,
            f"Deleting {describe(disk.kind, key_of(disk.manifest))}, which is used no more",
        )
        for name, disk in sorted(observed.disks.items())
        if name != current and not disk.deleting
    ]
