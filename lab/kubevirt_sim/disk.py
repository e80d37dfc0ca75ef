"""CDI: from a DataVolume to a claim that is filled. Pure.

    Pending -> [WaitForFirstConsumer ->] ImportScheduled -> ImportInProgress -> Succeeded | Failed

with `Clone...` in place of `Import...` where the source is another claim or a snapshot. A disk on a
class that waits for its first consumer shows WaitForFirstConsumer until its volume is bound, even
if the DataVolume asks to be bound immediately (recording `watch-rebuild`: 7 to 12 s).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lab.kubevirt_sim.behavior import Import
from lab.kubevirt_sim.instance import Watch
from lab.kubevirt_sim.statuses import build_condition
from lab.kubevirt_sim.storage import ClaimNotValid, Storage, render_claim
from libs.common.conditions import render_time
from libs.common.kinds import PVC, Manifest, build_object, key_of, uid_of
from libs.common.ownership import build_owner_reference, controller_of, controller_uid
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.contracts.cdi import (
    ALLOW_CLAIM_ADOPTION,
    BIND_IMMEDIATELY,
    DATA_VOLUME,
    DataVolumePhase,
)
from libs.contracts.claims import SELECTED_NODE, StorageClassView

POPULATED_FOR: Final = "cdi.kubevirt.io/storage.populatedFor"
"""Annotation on a claim: the DataVolume for which it was filled."""
_CREATED_FOR: Final = "cdi.kubevirt.io/createdForDataVolume"
_STEPS: Final = (25.0, 50.0, 75.0)
"""Percentages at which progress is written."""
_RESTART: Final = 10.0
_LONGEST_RESTART: Final = 300.0
"""Seconds before a kubelet starts an importer again, after its first failure and at most."""
_MISMATCH: Final = (
    "checksum validation failed: checksum mismatch: expected sha256:1, calculated sha256:2"
)
_UNREACHABLE: Final = (
    "Unable to connect to http data source: expected status code 200, got 404. "
    "Status: 404 Not Found"
)
_FAULTS: Final = {
    "error": ("Error", _UNREACHABLE),
    "pull": ("ImagePullFailed", "Unable to process data: failed to pull image: unexpected EOF"),
    "small": ("Error", "DataVolume too small to contain image"),
}
"""Reason and message of an importer that fails and starts again, by the order."""
_QUOTA: Final = (
    "Error starting pod: For more information, request access to cdi-deploy logs from your sysadmin"
)


@dataclass(frozen=True, slots=True)
class DiskInputs:
    """The inputs from which the state of a DataVolume is computed.

    Attributes:
        claim: The claim of its name; None for none.
        storage: Storage that the cluster offers.
        bind: Seconds until a volume is bound on a class that waits for the first consumer.
        order: How the import goes.
        left: Returns the remaining time of a step.
        now: Time.
    """

    claim: Manifest | None
    storage: Storage
    bind: float
    order: Import
    left: Watch
    now: datetime


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """The plan for a DataVolume.

    Attributes:
        create: Claim to create.
        bind: Whether the claim should be bound to a volume.
        status: Status from now on; None to leave it.
        adopt: Whether the claim becomes its child; it was there first and contains the data.
        collect: Whether it is deleted, and its claim kept.
        wait: Seconds until another look; None for none.
    """

    create: Manifest | None = None
    bind: bool = False
    status: Manifest | None = None
    adopt: bool = False
    collect: bool = False
    wait: float | None = None


_NOTHING: Final = DiskPlan()


def plan_disk(disk: Manifest, site: DiskInputs) -> DiskPlan:
    """Plan one step of a DataVolume."""
    phase, claim = text_at(disk, "status", "phase"), site.claim
    if phase == DataVolumePhase.SUCCEEDED:
        ours = claim is not None and controller_uid(claim) == uid_of(disk)
        return DiskPlan(collect=site.order.collected and ours)
    if phase == DataVolumePhase.FAILED:
        return _NOTHING
    if claim is None:
        return _plan_claim(disk, site, phase)
    if controller_uid(claim) != uid_of(disk):
        if may_adopt(disk, claim):
            return DiskPlan(adopt=True)
        # CDI leaves a claim alone that was not made for it.
        return _show(disk, site, DataVolumePhase.PENDING)
    if may_adopt(disk, claim):
        bound = text_at(claim, "status", "phase") == "Bound"
        phase = DataVolumePhase.SUCCEEDED if bound else DataVolumePhase.PENDING
        return _show(disk, site, phase, 100.0)
    if text_at(claim, "status", "phase") != "Bound":
        return _plan_binding(disk, claim, site)
    return _plan_copy(disk, site, phase)


def may_adopt(disk: Manifest, claim: Manifest) -> bool:
    """Return whether a claim counts as filled for a DataVolume that did not create it.

    Function ClaimMayExistBeforeDataVolume of CDI.
    """
    notes = text_map_at(claim, "metadata", "annotations")
    if notes.get(_CREATED_FOR) == uid_of(disk):
        return False
    allowed = text_map_at(disk, "metadata", "annotations").get(ALLOW_CLAIM_ADOPTION) == "true"
    return allowed or notes.get(POPULATED_FOR) == key_of(disk).name


def _plan_claim(disk: Manifest, site: DiskInputs, phase: str) -> DiskPlan:
    try:
        spec = render_claim(disk, site.storage)
    except ClaimNotValid as err:
        return _refuse(disk, site, str(err))
    if not phase:
        return _show(disk, site, DataVolumePhase.PENDING)
    return DiskPlan(create=build_claim(disk, spec))


def _plan_binding(disk: Manifest, claim: Manifest, site: DiskInputs) -> DiskPlan:
    storage_class = site.storage.find_class(text_at(claim, "spec", "storageClassName"))
    waits = storage_class is not None and StorageClassView.parse(storage_class).waits_for_consumer
    phase = DataVolumePhase.WAIT_FOR_FIRST_CONSUMER if waits else DataVolumePhase.PENDING
    if site.order.outcome == "quota" and text_at(disk, "status", "phase") == phase:
        shown = _fail_pod(disk, site, "ErrExceededQuota", _QUOTA)
        return _NOTHING if shown.status == disk["status"] else shown
    plan = _show(disk, site, phase)
    if plan.status is not None or not waits:
        return plan if plan.status is not None else DiskPlan(bind=True)
    if not is_wanted(disk, claim):
        return _NOTHING
    left = site.left("bind", site.bind)
    return DiskPlan(wait=left) if left else DiskPlan(bind=True)


def is_wanted(disk: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    """Return whether a disk on a class that waits has a consumer: the importer, or a pod."""
    now = text_map_at(disk, "metadata", "annotations").get(BIND_IMMEDIATELY)
    return now is not None or SELECTED_NODE in text_map_at(claim, "metadata", "annotations")


def build_claim(disk: Manifest, spec: Manifest) -> Manifest:
    """Build the claim of a DataVolume.

    CDI copies its labels and annotations (controller-base.go, `newPersistentVolumeClaim`).
    """
    key = key_of(disk)
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
            "annotations": {
                **text_map_at(disk, "metadata", "annotations"),
                _CREATED_FOR: uid_of(disk),
            },
            "ownerReferences": [build_owner_reference(DATA_VOLUME, disk)],
        },
        spec=spec,
    )


def build_claim_owners(disk: Manifest, claim: Manifest) -> list[Manifest]:
    """Build the owner references of a claim whose DataVolume CDI deletes after success."""
    owner = controller_of(disk)
    kept = [
        dict(reference)
        for reference in maps_at(claim, "metadata", "ownerReferences")
        if reference.get("uid") != uid_of(disk)
    ]
    return [*kept, *([owner] if owner is not None else [])]


def _plan_copy(disk: Manifest, site: DiskInputs, phase: str) -> DiskPlan:
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
        failed = str(DataVolumePhase.FAILED)
        return _fail_pod(disk, site, "ChecksumError", _MISMATCH, phase=failed)
    if outcome in _FAULTS and not left:
        return _restart(disk, site, *_FAULTS[outcome])
    if not left:
        return _show(disk, site, DataVolumePhase.SUCCEEDED, 100.0)
    return _progress(disk, site, running, left)


def _progress(disk: Manifest, site: DiskInputs, phase: str, left: float) -> DiskPlan:
    total = site.order.seconds
    done = 100.0 * (total - left) / total
    reached = max((step for step in _STEPS if done >= step - 1e-6), default=0.0)
    coming = next((step for step in _STEPS if step > reached), 100.0)
    wait = left - total * (100.0 - coming) / 100.0
    plan = _show(disk, site, phase, reached)
    return plan if plan.status is not None else DiskPlan(wait=max(wait, 1e-3))


def _restart(disk: Manifest, site: DiskInputs, reason: str, text: str) -> DiskPlan:
    """Show an importer that failed and starts again; CDI never gives up, and keeps the phase."""
    count = int(map_at(disk, "status").get("restartCount") or 0)
    if not count:
        return _fail_pod(disk, site, reason, text, restartCount=1)
    left = site.left(f"restart {count}", min(_RESTART * 2 ** (count - 1), _LONGEST_RESTART))
    if left:
        return DiskPlan(wait=left)
    return _fail_pod(disk, site, reason, text, restartCount=count + 1)


def _fail_pod(disk: Manifest, site: DiskInputs, reason: str, text: str, **changes: Any) -> DiskPlan:
    held = disk.get("status") or {}
    running = build_condition("Running", False, reason, text)
    conditions = [*_build_bound(disk, site), build_condition("Ready", False), running]
    status = {
        **held,
        **changes,
        "conditions": _merge(held, conditions, site.now),
    }
    return DiskPlan(status=status)


def _words(disk: Mapping[str, Any]) -> tuple[str, str]:
    source = map_at(disk, "spec", "source")
    if "pvc" in source or "snapshot" in source or map_at(disk, "spec", "sourceRef"):
        return "CloneScheduled", DataVolumePhase.CLONE_IN_PROGRESS
    return DataVolumePhase.IMPORT_SCHEDULED, DataVolumePhase.IMPORT_IN_PROGRESS


def _show(disk: Manifest, site: DiskInputs, phase: str, percent: float | None = None) -> DiskPlan:
    held = disk.get("status") or {}
    copying = phase in (DataVolumePhase.IMPORT_IN_PROGRESS, DataVolumePhase.CLONE_IN_PROGRESS)
    done = phase == DataVolumePhase.SUCCEEDED
    running = build_condition("Running", copying, "Pod is running" if copying else "")
    if done:
        what = "Clone" if DataVolumePhase.CLONE_IN_PROGRESS in _words(disk) else "Import"
        running = build_condition("Running", False, "Completed", f"{what} Complete")
    ready = build_condition("Ready", done, "TransferRunning" if copying else "")
    conditions = [*_build_bound(disk, site), ready, running]
    status = {
        **held,
        "phase": str(phase),
        "conditions": _merge(held, conditions, site.now),
    }
    if site.claim is not None:
        status["claimName"] = disk["metadata"]["name"]
        status["progress"] = (
            f"{percent:.1f}%" if percent is not None else held.get("progress", "N/A")
        )
    return DiskPlan(status=status) if status != held else _NOTHING


def _refuse(disk: Manifest, site: DiskInputs, text: str) -> DiskPlan:
    """Show a disk that gets no claim; its phase stays empty."""
    held = disk.get("status") or {}
    conditions = [
        build_condition("Bound", False, "ErrClaimNotValid", text),
        build_condition("Ready", False, "ErrClaimNotValid", text),
        build_condition("Running", False),
    ]
    status = {**held, "conditions": _merge(held, conditions, site.now)}
    status.pop("phase", None)
    return DiskPlan(status=status) if status != held else _NOTHING


def _build_bound(disk: Manifest, site: DiskInputs) -> list[Manifest]:
    name = disk["metadata"]["name"]
    if site.claim is None:
        return [build_condition("Bound", False, "NotFound", "No PVC found")]
    bound = text_at(site.claim, "status", "phase") == "Bound"
    word = "Bound" if bound else "Pending"
    return [build_condition("Bound", bound, word, f"PVC {name} {word}")]


def _merge(
    held: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]], now: datetime
) -> list[Manifest]:
    """Give conditions CDI's times: of the last change of the status, and of the last change."""
    before = {text_at(each, "type"): each for each in maps_at(held, "conditions")}
    merged = []
    for condition in wanted:
        old = before.get(condition["type"], {})
        words = {name: value for name, value in old.items() if not name.startswith("last")}
        same = old.get("status") == condition["status"]
        merged.append(
            {
                **condition,
                "lastHeartbeatTime": (
                    old["lastHeartbeatTime"] if words == condition else render_time(now)
                ),
                "lastTransitionTime": old["lastTransitionTime"] if same else render_time(now),
            }
        )
    return merged
