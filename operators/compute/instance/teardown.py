"""Teardown: plans the clean-up before the finalizer of an Instance is removed. Pure."""

from __future__ import annotations

from libs.common.actions import Action, Teardown
from libs.common.kinds import Kind, Manifest, describe, is_deleting, key_of, uid_of
from libs.common.plan import Delete
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from operators.compute.api.instance import DeletionMode, Instance
from operators.compute.api.reasons import Reason
from operators.compute.instance.observed import DiskView, Observed, find_current_disk
from operators.compute.instance.reconcile import release
from operators.compute.marks import has_other_owner, is_moved, is_ours


def plan_teardown(instance: Instance, observed: Observed) -> Teardown:
    """Plan the clean-up before the finalizer of an Instance can be removed.

    The address is released first and the disk is deleted last: no traffic is routed to a machine
    that is being deleted, and no running machine loses its disk. The current deletion policy
    applies.
    """
    address = _end_address(instance, observed)
    machine = observed.machine
    if machine is not None:
        key = machine.view.key
        message = f"Waiting for {describe(VIRTUAL_MACHINE, key)} to be deleted"
        actions = list(address)
        if not machine.view.deleting:
            step = Delete(VIRTUAL_MACHINE, key, machine.view.uid)
            note = f"Deleting {describe(VIRTUAL_MACHINE, key)}"
            actions.append(Action(step, Reason.DELETING_MACHINE, note))
        return Teardown(tuple(actions), reason=Reason.DELETING_MACHINE, message=message)
    if observed.run is not None:
        message = "Waiting for the machine to shut down"
        return Teardown(address, reason=Reason.DELETING_MACHINE, message=message)
    return _end_disks(instance, observed, address)


def _end_address(instance: Instance, observed: Observed) -> tuple[Action, ...]:
    claim = observed.claim_manifest
    if claim is None or not is_ours(claim, instance.metadata.uid):
        return ()
    retained = instance.spec.deletion_policy.public_ip is DeletionMode.RETAIN
    kept = retained or is_moved(claim, instance)
    action = _end(IP_CLAIM, claim, Reason.WITHDRAWING_ADDRESS, instance, kept=kept)
    return () if action is None else (action,)


def _end_disks(instance: Instance, observed: Observed, before: tuple[Action, ...]) -> Teardown:
    actions = list(before)
    for _, disk in sorted(observed.disks.items()):
        kept = disk.name in observed.in_use or _is_retained(instance, observed, disk)
        action = _end(disk.kind, disk.manifest, Reason.DELETING_DISK, instance, kept=kept)
        if action is not None:
            actions.append(action)
    waits = [disk for _, disk in sorted(observed.disks.items())]
    if not waits:
        return Teardown(tuple(actions), done=not actions, reason=Reason.WITHDRAWING_ADDRESS)
    message = f"Waiting for {describe(DATA_VOLUME, key_of(waits[0].manifest))} to be deleted"
    return Teardown(tuple(actions), reason=Reason.DELETING_DISK, message=message)


def _is_retained(instance: Instance, observed: Observed, disk: DiskView) -> bool:
    """Return whether a disk has data of the machine that its policy keeps.

    A disk that a Rebuild has not filled yet has none, and the next Instance with this name could
    not choose between it and the root disk.
    """
    if instance.spec.deletion_policy.root_disk is not DeletionMode.RETAIN:
        return False
    return disk.filled or disk.unknown or disk.name == find_current_disk(instance, observed)


def _end(
    kind: Kind, held: Manifest, reason: Reason, instance: Instance, *, kept: bool
) -> Action | None:
    if kept or has_other_owner(held, instance.metadata.uid):
        return release(kind, held, instance.metadata.uid)
    if is_deleting(held):
        return None
    note = f"Deleting {describe(kind, key_of(held))}"
    return Action(Delete(kind, key_of(held), uid_of(held)), reason, note)
