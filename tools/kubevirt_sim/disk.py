"""CDI: from a DataVolume to a claim that is filled. Pure.

    Pending -> [WaitForFirstConsumer ->] ImportScheduled -> ImportInProgress -> Succeeded | Failed

with `Clone...` in place of `Import...` where the source is another claim or a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from libs.common.contracts.cdi import BIND_IMMEDIATELY, DATA_VOLUME, DataVolumePhase
from libs.common.contracts.reading import map_at, maps_at, text_at, text_map_at
from libs.common.kinds import PVC, Manifest, build_object, key_of, uid_of
from libs.common.ownership import build_owner_reference, controller_of, controller_uid
from tools.kubevirt_sim.behavior import Import
from tools.kubevirt_sim.instance import Watch
from tools.kubevirt_sim.statuses import build_condition, merge_conditions

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation by which a scheduler tells where the first consumer of a claim will be."""
_STEPS: Final = (25.0, 50.0, 75.0)
"""Percentages at which progress is written."""
_FINAL: Final = (DataVolumePhase.SUCCEEDED, DataVolumePhase.FAILED)


@dataclass(frozen=True, slots=True)
class Site:
    """Hold what a DataVolume is judged by.

    Attributes:
        claim: The claim of its name; None for none.
        waits: Whether the class of the claim waits for the first consumer.
        order: How the import goes.
        left: Tells how much of a step is left.
        now: Time.
    """

    claim: Manifest | None
    waits: bool
    order: Import
    left: Watch
    now: datetime


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """Say what becomes of a DataVolume.

    Attributes:
        create: Claim to create.
        bind: Whether the claim is to be bound to a volume.
        status: Status from now on; None to leave it.
        collect: Whether it is deleted, and its claim kept.
        wait: Seconds until another look; None for none.
    """

    create: Manifest | None = None
    bind: bool = False
    status: Manifest | None = None
    collect: bool = False
    wait: float | None = None


_NOTHING: Final = DiskPlan()


def plan_disk(disk: Manifest, site: Site) -> DiskPlan:
    """Plan one step of a DataVolume."""
    phase, claim = text_at(disk, "status", "phase"), site.claim
    if phase == DataVolumePhase.SUCCEEDED:
        ours = claim is not None and controller_uid(claim) == uid_of(disk)
        return DiskPlan(collect=site.order.collected and ours)
    if phase == DataVolumePhase.FAILED:
        return _NOTHING
    if claim is None:
        if not phase:
            return _show(disk, site, DataVolumePhase.PENDING)
        return DiskPlan(create=build_claim(disk))
    if controller_uid(claim) != uid_of(disk):
        # CDI leaves a claim alone that was not made for it.
        return _show(disk, site, DataVolumePhase.PENDING)
    if waits_for_consumer(disk, site):
        return _show(disk, site, DataVolumePhase.WAIT_FOR_FIRST_CONSUMER)
    if text_at(claim, "status", "phase") != "Bound":
        plan = _show(disk, site, DataVolumePhase.PENDING)
        return plan if plan.status is not None else DiskPlan(bind=True)
    return _plan_copy(disk, site, phase)


def waits_for_consumer(disk: Mapping[str, Any], site: Site) -> bool:
    """Tell whether nothing happens before somebody wants the disk."""
    if site.claim is None or not site.waits:
        return False
    now = text_map_at(disk, "metadata", "annotations").get(BIND_IMMEDIATELY)
    chosen = text_map_at(site.claim, "metadata", "annotations").get(SELECTED_NODE)
    return now is None and not chosen and text_at(site.claim, "status", "phase") != "Bound"


def build_claim(disk: Manifest) -> Manifest:
    """Build the claim of a DataVolume."""
    key = key_of(disk)
    asked = map_at(disk, "spec", "storage") or map_at(disk, "spec", "pvc")
    spec: Manifest = {
        "accessModes": list(asked.get("accessModes") or ["ReadWriteOnce"]),
        "resources": dict(map_at(asked, "resources")) or {"requests": {"storage": "1Gi"}},
    }
    for name in ("storageClassName", "volumeMode"):
        if isinstance(asked.get(name), str):
            spec[name] = asked[name]
    return build_object(
        PVC,
        key.name,
        key.namespace,
        metadata={
            "labels": {
                **text_map_at(disk, "metadata", "labels"),
                "app": "containerized-data-importer",
                "app.kubernetes.io/managed-by": "cdi-controller",
            },
            "ownerReferences": [build_owner_reference(DATA_VOLUME, disk)],
        },
        spec=spec,
    )


def build_heirs(disk: Manifest, claim: Manifest) -> list[Manifest]:
    """Build the owner references of a claim whose DataVolume CDI deletes after success."""
    owner = controller_of(disk)
    kept = [
        dict(reference)
        for reference in maps_at(claim, "metadata", "ownerReferences")
        if reference.get("uid") != uid_of(disk)
    ]
    return [*kept, *([owner] if owner is not None else [])]


def _plan_copy(disk: Manifest, site: Site, phase: str) -> DiskPlan:
    scheduled, running = _words(disk)
    if phase not in (scheduled, running):
        return _show(disk, site, scheduled)
    if phase == scheduled:
        return _show(disk, site, running, 0.0)
    outcome = site.order.outcome
    if outcome == "stall":
        return _NOTHING
    left = site.left("import", site.order.seconds)
    if outcome == "fail" and not left:
        return _show(disk, site, DataVolumePhase.FAILED)
    if outcome == "error" and not left:
        return _restart(disk, site)
    if not left:
        return _show(disk, site, DataVolumePhase.SUCCEEDED, 100.0)
    return _progress(disk, site, running, left)


def _progress(disk: Manifest, site: Site, phase: str, left: float) -> DiskPlan:
    total = site.order.seconds
    done = 100.0 * (total - left) / total
    reached = max((step for step in _STEPS if done >= step - 1e-6), default=0.0)
    coming = next((step for step in _STEPS if step > reached), 100.0)
    wait = left - total * (100.0 - coming) / 100.0
    plan = _show(disk, site, phase, reached)
    return plan if plan.status is not None else DiskPlan(wait=max(wait, 1e-3))


def _restart(disk: Manifest, site: Site) -> DiskPlan:
    """Show an importer that has failed and begins again, as it does for ever."""
    status = disk.get("status") or {}
    if status.get("restartCount"):
        return _NOTHING
    plan = _show(disk, site, text_at(status, "phase"))
    shown = plan.status or dict(status)
    text = "Unable to process data: injected"
    conditions = [
        item if item["type"] != "Running" else {**item, "reason": "Error", "message": text}
        for item in shown["conditions"]
    ]
    return DiskPlan(status={**shown, "restartCount": 1, "conditions": conditions})


def _words(disk: Mapping[str, Any]) -> tuple[str, str]:
    source = map_at(disk, "spec", "source")
    if "pvc" in source or "snapshot" in source or map_at(disk, "spec", "sourceRef"):
        return "CloneScheduled", DataVolumePhase.CLONE_IN_PROGRESS
    return DataVolumePhase.IMPORT_SCHEDULED, DataVolumePhase.IMPORT_IN_PROGRESS


def _show(disk: Manifest, site: Site, phase: str, percent: float | None = None) -> DiskPlan:
    held = disk.get("status") or {}
    bound = text_at(site.claim or {}, "status", "phase") == "Bound"
    copying = phase in (DataVolumePhase.IMPORT_IN_PROGRESS, DataVolumePhase.CLONE_IN_PROGRESS)
    text = "" if bound else f"PVC {disk['metadata']['name']} Pending"
    conditions = [
        build_condition("Bound", bound, "Bound" if bound else "Pending", text),
        build_condition("Running", copying, "Pod is running" if copying else "", ""),
        build_condition("Ready", phase == DataVolumePhase.SUCCEEDED),
    ]
    status = {
        **held,
        "phase": str(phase),
        "claimName": disk["metadata"]["name"],
        "progress": f"{percent:.1f}%" if percent is not None else held.get("progress", "N/A"),
        "conditions": merge_conditions(held.get("conditions") or (), conditions, site.now),
    }
    return DiskPlan(status=status) if status != held else _NOTHING
