"""Snapshot: KubeVirt takes a snapshot of the machine with its disks. Pure.

The snapshot belongs to the user: it is kept after the Operation and the Instance are deleted.
"""

from __future__ import annotations

from datetime import datetime

from libs.common.actions import Action
from libs.common.plan import Create
from libs.contracts.machine_snapshots import (
    MACHINE_SNAPSHOT,
    MachineSnapshotView,
    SnapshotIndication,
)
from operators.compute.api.instance import ROOT
from operators.compute.api.operation import Facts, Operation, OperationReason
from operators.compute.operation.observed import (
    NextAction,
    Observed,
    Target,
    fail,
    proceed,
    succeed,
    wait,
)
from operators.compute.operation.requests import BASELINE, TAKE, explain_wait
from operators.compute.operation.resources import build_snapshot, is_snapshot_of


def snapshot(operation: Operation, target: Target, observed: Observed, now: datetime) -> NextAction:
    """Create a snapshot through KubeVirt, and wait until it is ready."""
    if operation.observed.step == BASELINE:
        if target.instance.observed.vm_uid is None:
            return fail(OperationReason.NOT_RUNNING, "the machine does not exist yet")
        for volume, why in sorted(observed.unsavable.items()):
            message = f"KubeVirt cannot take a snapshot of disk {volume}: {why}"
            return fail(OperationReason.SNAPSHOT_UNSUPPORTED, message)
        wanted = operation.spec.snapshot
        name = (None if wanted is None else wanted.name) or operation.metadata.name
        return proceed(TAKE, facts=Facts(snapshot=name))
    name = operation.observed.facts.snapshot or ""
    held = observed.snapshot
    if held is None:
        step = Create(
            MACHINE_SNAPSHOT,
            build_snapshot(operation, name),
            ours=lambda manifest: is_snapshot_of(manifest, operation.metadata.uid),
        )
        note = f"Asked KubeVirt for VirtualMachineSnapshot {name}"
        return wait(f"asking for snapshot {name}", Action(step, OperationReason.IN_PROGRESS, note))
    if not is_snapshot_of({"metadata": {"annotations": held.annotations}}, operation.metadata.uid):
        message = f"spec.snapshot.name: VirtualMachineSnapshot {name} exists; choose another name"
        return fail(OperationReason.NAME_TAKEN, message)
    if held.failed or held.deleting:
        why = held.error or "KubeVirt gives no reason"
        return fail(OperationReason.SNAPSHOT_FAILED, f"snapshot {name}: {why}")
    if not held.ready or observed.saved is None:
        return wait(explain_wait(target, f"waiting for snapshot {name}"))
    lacking = _list_disks(target, held) - observed.saved
    if lacking:
        message = (
            f"VirtualMachineSnapshot {name} is incomplete: KubeVirt left out disk "
            f"{', '.join(sorted(lacking))}; look for a VolumeSnapshotClass of the storage, and "
            "take another snapshot"
        )
        return fail(OperationReason.SNAPSHOT_INCOMPLETE, message)
    return succeed(f"snapshot {name} is ready{_describe(held.indications)}")


def _list_disks(target: Target, held: MachineSnapshotView) -> set[str]:
    """Return the disks that a snapshot must contain.

    A volume that was added to the spec becomes a disk of the machine only at its next start.
    Whether it is a disk already is known from KubeVirt, which lists the disks that it left out.
    """
    asked = {volume.name for volume in target.instance.spec.volumes}
    return {ROOT} | (asked & set(held.excluded))


def _describe(indications: tuple[str, ...]) -> str:
    """Describe the consistency of a snapshot."""
    if SnapshotIndication.ONLINE not in indications:
        return ""
    if SnapshotIndication.GUEST_AGENT in indications:
        return ", taken while the guest file systems were frozen"
    return ", taken of a running guest without agent: crash-consistent, as after a power failure"
