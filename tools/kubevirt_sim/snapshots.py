"""Snapshots of machines: what they are made of, and when they can be used.

    InProgress -> Succeeded | Failed

Nothing is copied. Where the cluster serves VolumeSnapshots one is made for each disk, which whoever
plays the driver fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from libs.common.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from libs.common.contracts.machine_snapshots import (
    MACHINE_SNAPSHOT,
    MACHINE_SNAPSHOT_CONTENT,
    MachineSnapshotPhase,
    SnapshotIndication,
)
from libs.common.contracts.reading import map_at, maps_at, text_at, text_map_at
from libs.common.contracts.snapshots import VOLUME_SNAPSHOT
from libs.common.kinds import Key, Kind, Manifest, build_object, is_deleting, key_of, uid_of
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create, Step
from libs.common.runtime import Cache, Context, Controller, Result
from tools.kubevirt_sim.behavior import PREFIX
from tools.kubevirt_sim.edge import Stage, Turned, beside, patch_status, take_turns
from tools.kubevirt_sim.statuses import build_condition, holds, merge_conditions, render_time

_OUTCOME: Final = PREFIX + "snapshot"
"""Annotation of a snapshot: `fail` for one that cannot be taken."""


def build_snapshot_controller(stage: Stage) -> Controller:
    """Build the controller of VirtualMachineSnapshot."""

    async def reconcile(ctx: Context) -> Result:
        async def turn(snapshot: Manifest) -> Turned:
            return _turn(ctx, snapshot, stage)

        result, _ = await take_turns(ctx, MACHINE_SNAPSHOT, turn)
        return result

    return (
        Controller(
            "sim-virt-controller-snapshot",
            primary=MACHINE_SNAPSHOT,
            reconcile=reconcile,
            source="reflector",
        )
        .watches(VIRTUAL_MACHINE, map_machine)
        .reads(VIRTUAL_MACHINE_INSTANCE)
        .reads(MACHINE_SNAPSHOT_CONTENT, source="reflector")
        .reads(VOLUME_SNAPSHOT, optional=True, source="reflector")
    )


def map_machine(machine: Manifest, cache: Cache) -> Iterable[Key]:
    """Name the snapshots that wait for a machine."""
    key = key_of(machine)
    for snapshot in cache.store(MACHINE_SNAPSHOT).list(key.namespace):
        if text_at(snapshot, "spec", "source", "name") == key.name:
            yield key_of(snapshot)


def content_name(uid: str) -> str:
    """Name the content of a snapshot, as KubeVirt does."""
    return f"vmsnapshot-content-{uid}"


def volume_snapshot_name(uid: str, volume: str) -> str:
    """Name the snapshot of one volume, as KubeVirt does."""
    return f"vmsnapshot-{uid}-volume-{volume}"


def _turn(ctx: Context, snapshot: Manifest, stage: Stage) -> Turned:
    phase, uid = text_at(snapshot, "status", "phase"), uid_of(snapshot)
    final = (MachineSnapshotPhase.SUCCEEDED, MachineSnapshotPhase.FAILED)
    if is_deleting(snapshot) or phase in final:
        return Turned()
    key = beside(ctx, text_at(snapshot, "spec", "source", "name"))
    machine = ctx.get(VIRTUAL_MACHINE, key)
    if machine is None:
        why = build_condition("Progressing", False, "", "Source does not exist")
        return _write(ctx, snapshot, MachineSnapshotPhase.IN_PROGRESS, [why])
    if text_map_at(snapshot, "metadata", "annotations").get(_OUTCOME) == "fail":
        error = {"message": "injected by the simulator", "time": render_time(ctx.now())}
        why = build_condition("Failure", True, "", error["message"])
        return _write(ctx, snapshot, MachineSnapshotPhase.FAILED, [why], error=error)
    if not phase:
        why = build_condition("Progressing", True, "", "Source locked and operation in progress")
        return _write(ctx, snapshot, MachineSnapshotPhase.IN_PROGRESS, [why])
    left = stage.watches.left(uid, "snapshot", stage.timing.snapshot)
    if left:
        return Turned(wait=left)
    steps = _build_parts(ctx, snapshot, machine)
    if steps:
        return Turned(steps)
    run = ctx.get(VIRTUAL_MACHINE_INSTANCE, key)
    why = build_condition("Ready", True, "", "Operation complete")
    return _write(
        ctx,
        snapshot,
        MachineSnapshotPhase.SUCCEEDED,
        [why],
        readyToUse=True,
        sourceUID=uid_of(machine),
        creationTime=render_time(ctx.now()),
        virtualMachineSnapshotContentName=content_name(uid),
        indications=_indicate(run),
    )


def _indicate(run: Mapping[str, Any] | None) -> list[str]:
    if run is None:
        return []
    agent = holds(run, "AgentConnected")
    how = SnapshotIndication.GUEST_AGENT if agent else SnapshotIndication.NO_GUEST_AGENT
    return [str(SnapshotIndication.ONLINE), str(how)]


def _build_parts(ctx: Context, snapshot: Manifest, machine: Manifest) -> list[Step]:
    """Build what is not there yet: snapshots of the volumes, and the content that lists them."""
    uid = uid_of(snapshot)
    volumes = maps_at(machine, "spec", "template", "spec", "volumes")
    claims = {text_at(volume, "name"): _claim_of(volume) for volume in volumes}
    backups, steps = [], list[Step]()
    for volume, claim in claims.items():
        if not claim:
            continue
        name = volume_snapshot_name(uid, volume)
        backups.append(
            {
                "volumeName": volume,
                "persistentVolumeClaim": {"metadata": {"name": claim}},
                "volumeSnapshotName": name,
            }
        )
        key = beside(ctx, name)
        if ctx.is_served(VOLUME_SNAPSHOT) and ctx.get(VOLUME_SNAPSHOT, key) is None:
            source = {"source": {"persistentVolumeClaimName": claim}}
            steps.append(_create(ctx, VOLUME_SNAPSHOT, name, snapshot, source))
    if ctx.get(MACHINE_SNAPSHOT_CONTENT, beside(ctx, content_name(uid))) is None:
        spec = {
            "virtualMachineSnapshotName": key_of(snapshot).name,
            "source": {"virtualMachine": {"spec": map_at(machine, "spec")}},
            "volumeBackups": backups,
        }
        steps.append(_create(ctx, MACHINE_SNAPSHOT_CONTENT, content_name(uid), snapshot, spec))
    return steps


def _claim_of(volume: Mapping[str, Any]) -> str:
    claim = text_at(volume, "persistentVolumeClaim", "claimName")
    return text_at(volume, "dataVolume", "name") or claim


def _create(
    ctx: Context, kind: Kind, name: str, snapshot: Manifest, spec: Mapping[str, Any]
) -> Create:
    manifest = build_object(
        kind,
        name,
        ctx.key.namespace,
        metadata={"ownerReferences": [build_owner_reference(MACHINE_SNAPSHOT, snapshot)]},
        spec=dict(spec),
    )
    return Create(kind, manifest, ours=lambda _: True)


def _write(
    ctx: Context,
    snapshot: Manifest,
    phase: MachineSnapshotPhase,
    conditions: list[Manifest],
    **fields: Any,
) -> Turned:
    held = map_at(snapshot, "status")
    merged = merge_conditions(maps_at(held, "conditions"), conditions, ctx.now())
    status = {"readyToUse": False, **held, **fields, "phase": str(phase), "conditions": merged}
    if status == held:
        return Turned()
    return Turned([patch_status(MACHINE_SNAPSHOT, snapshot, status)])
