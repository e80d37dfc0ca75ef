"""Snapshots of machines: what they are made of, and when they can be used.

    InProgress -> Succeeded | Failed

Only volumes whose storage can take snapshots are included. A snapshot without any is ready as well
(recording `03-vmsnapshot`). The machine is locked while the snapshot is taken. Nothing is copied.
If the cluster serves VolumeSnapshots, one is created for each disk, for a driver to fill.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.edge import (
    SimulatorContext,
    TurnResult,
    patch_status,
    sibling_key,
    take_turns,
)
from lab.kubevirt_sim.launcher import claim_of
from lab.kubevirt_sim.snapshot_volumes import (
    VOLUME_SNAPSHOT_CLASS,
    evaluate_volumes,
    read_catalog,
)
from lab.kubevirt_sim.statuses import build_condition, merge_conditions
from libs.common.conditions import render_time
from libs.common.kinds import (
    PVC,
    STORAGE_CLASS,
    Key,
    Kind,
    Manifest,
    build_object,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.ownership import build_owner_reference
from libs.common.plan import Create, Step
from libs.common.reading import holds_at, map_at, maps_at, text_at, text_map_at
from libs.common.runtime import Cache, Context, Controller, Result
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from libs.contracts.machine_snapshots import (
    MACHINE_SNAPSHOT,
    MACHINE_SNAPSHOT_CONTENT,
    MachineSnapshotPhase,
    SnapshotIndication,
)
from libs.contracts.snapshots import VOLUME_SNAPSHOT

_OUTCOME: Final = PREFIX + "snapshot"
"""Annotation of a snapshot: `fail` for one that cannot be taken."""
_FINAL: Final = (MachineSnapshotPhase.SUCCEEDED, MachineSnapshotPhase.FAILED)
_MESSAGES: Final[Mapping[str, str]] = {
    "Online": (
        "Snapshot taken while the VM was running. Consistency depends on guest-agent quiescing."
    ),
    "GuestAgent": (
        "Guest agent was active and attempted to quiesce the filesystem for application "
        "consistency."
    ),
    "NoGuestAgent": (
        "Guest agent was not available. Snapshot is crash-consistent and may not be "
        "application-consistent."
    ),
    "PartialSnapshot": (
        "Not all snapshotable volumes were included in the snapshot. Check "
        "status.snapshotVolumes for excluded volumes and VM VolumeSnapshotStatus for details."
    ),
}
"""KubeVirt's words for the indications (storage/snapshot/snapshot.go)."""


def build_snapshot_controller(simulator: SimulatorContext) -> Controller:
    """Build the controller of VirtualMachineSnapshot."""

    async def reconcile(ctx: Context) -> Result:
        async def turn(snapshot: Manifest) -> TurnResult:
            return _turn(ctx, snapshot, simulator)

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
        .reads(VOLUME_SNAPSHOT_CLASS, optional=True, source="reflector")
        .reads(STORAGE_CLASS, source="reflector")
        .reads(PVC, source="reflector")
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


def _turn(ctx: Context, snapshot: Manifest, simulator: SimulatorContext) -> TurnResult:
    phase, uid = text_at(snapshot, "status", "phase"), uid_of(snapshot)
    key = sibling_key(ctx, text_at(snapshot, "spec", "source", "name"))
    machine = ctx.get(VIRTUAL_MACHINE, key)
    if is_deleting(snapshot) or phase in _FINAL:
        return TurnResult(_unlock(snapshot, machine))
    if machine is None:
        why = build_condition("Progressing", False, "Source does not exist")
        return _write(ctx, snapshot, MachineSnapshotPhase.IN_PROGRESS, [why])
    if text_map_at(snapshot, "metadata", "annotations").get(_OUTCOME) == "fail":
        error = {"message": "injected by the simulator", "time": render_time(ctx.now())}
        why = build_condition("Failure", True, error["message"])
        return _write(ctx, snapshot, MachineSnapshotPhase.FAILED, [why], error=error)
    if not phase:
        why = build_condition("Progressing", True, "Source locked and operation in progress")
        wanted = _write(ctx, snapshot, MachineSnapshotPhase.IN_PROGRESS, [why])
        return TurnResult([*_lock(snapshot, machine), *wanted.steps])
    left = simulator.watches.left(uid, "snapshot", simulator.timing.snapshot)
    if left:
        return TurnResult(wait=left)
    volumes = maps_at(machine, "spec", "template", "spec", "volumes")
    included = [
        text_at(each, "name")
        for each in evaluate_volumes(volumes, ctx.key.namespace, read_catalog(ctx))
        if each["enabled"]
    ]
    steps = _build_parts(ctx, snapshot, machine, included)
    return TurnResult(steps) if steps else _finish(ctx, snapshot, machine, included)


def _finish(
    ctx: Context, snapshot: Manifest, machine: Manifest, included: Sequence[str]
) -> TurnResult:
    volumes = maps_at(machine, "spec", "template", "spec", "volumes")
    excluded = [each for each in volumes if text_at(each, "name") not in included]
    run = ctx.get(VIRTUAL_MACHINE_INSTANCE, key_of(machine))
    found = _indicate(run)
    if any(claim_of(each) for each in excluded):
        found.append("PartialSnapshot")
    lists = {
        "includedVolumes": list(included),
        "excludedVolumes": [text_at(each, "name") for each in excluded],
    }
    return _write(
        ctx,
        snapshot,
        MachineSnapshotPhase.SUCCEEDED,
        [
            build_condition("Progressing", False, "Operation complete"),
            build_condition("Ready", True, "Ready"),
        ],
        # An empty snapshot is ready as well.
        readyToUse=True,
        sourceUID=uid_of(machine),
        creationTime=render_time(ctx.now()),
        virtualMachineSnapshotContentName=content_name(uid_of(snapshot)),
        snapshotVolumes={name: names for name, names in lists.items() if names},
        **({"indications": found} if found else {}),
        **({"sourceIndications": [_explain(each) for each in found]} if found else {}),
    )


def _lock(snapshot: Manifest, machine: Manifest) -> list[Step]:
    status, name = map_at(machine, "status"), key_of(snapshot).name
    if text_at(status, "snapshotInProgress"):
        return []
    return [patch_status(VIRTUAL_MACHINE, machine, {**status, "snapshotInProgress": name})]


def _unlock(snapshot: Manifest, machine: Manifest | None) -> list[Step]:
    status = dict(map_at(machine or {}, "status"))
    if machine is None or status.pop("snapshotInProgress", "") != key_of(snapshot).name:
        return []
    return [patch_status(VIRTUAL_MACHINE, machine, status)]


def _indicate(run: Mapping[str, Any] | None) -> list[str]:
    if run is None:
        return []
    agent = holds_at(run, "AgentConnected")
    how = SnapshotIndication.GUEST_AGENT if agent else SnapshotIndication.NO_GUEST_AGENT
    return sorted([str(SnapshotIndication.ONLINE), str(how)])


def _explain(indication: str) -> Manifest:
    return {"indication": indication, "message": _MESSAGES[indication]}


def _build_parts(
    ctx: Context, snapshot: Manifest, machine: Manifest, included: Sequence[str]
) -> list[Step]:
    """Build what is not there yet: snapshots of the volumes, and the content that lists them."""
    uid = uid_of(snapshot)
    backups, steps = [], list[Step]()
    for volume in maps_at(machine, "spec", "template", "spec", "volumes"):
        label, claim = text_at(volume, "name"), claim_of(volume)
        if label not in included:
            continue
        name = volume_snapshot_name(uid, label)
        backups.append(
            {
                "volumeName": label,
                "persistentVolumeClaim": {"metadata": {"name": claim}},
                "volumeSnapshotName": name,
            }
        )
        key = sibling_key(ctx, name)
        if ctx.is_served(VOLUME_SNAPSHOT) and ctx.get(VOLUME_SNAPSHOT, key) is None:
            source = {"source": {"persistentVolumeClaimName": claim}}
            steps.append(_create(ctx, VOLUME_SNAPSHOT, name, snapshot, source))
    if ctx.get(MACHINE_SNAPSHOT_CONTENT, sibling_key(ctx, content_name(uid))) is None:
        spec = {
            "virtualMachineSnapshotName": key_of(snapshot).name,
            "source": {"virtualMachine": {"spec": map_at(machine, "spec")}},
            **({"volumeBackups": backups} if backups else {}),
        }
        steps.append(_create(ctx, MACHINE_SNAPSHOT_CONTENT, content_name(uid), snapshot, spec))
    return steps


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
) -> TurnResult:
    held = map_at(snapshot, "status")
    merged = merge_conditions(maps_at(held, "conditions"), conditions, ctx.now())
    status = {"readyToUse": False, **held, **fields, "phase": str(phase), "conditions": merged}
    if status == held:
        return TurnResult()
    return TurnResult([patch_status(MACHINE_SNAPSHOT, snapshot, status)])
