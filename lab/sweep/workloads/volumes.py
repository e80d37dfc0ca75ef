"""Workloads of the volumes operator: growth, lost claims, deletion, and retained data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from lab.sweep.components import EVERYBODY
from lab.sweep.faults import is_foreign
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.virtualization import show_status
from lab.sweep.workload import (
    Phase,
    State,
    User,
    Workload,
    build_open_crd,
    change,
    is_empty,
    is_observed,
    remove,
)
from libs.common.crd import build_crd
from libs.common.kinds import POD, PVC, STORAGE_CLASS, Manifest, build_object, is_deleting
from libs.common.quantity import parse_quantity
from libs.contracts.snapshots import VOLUME_SNAPSHOT
from operators.volumes.api.v1alpha1 import DEMO_VOLUME, DemoVolume
from operators.volumes.controller import OPERATOR
from operators.volumes.naming import ADOPTED_BY, SYNC_OPTIONS

_FINAL: Final = re.compile(r"-final-[0-9a-f]{8}")
_CLASS: Final[Manifest] = build_object(
    STORAGE_CLASS,
    "sweep",
    provisioner="sweep.slipway.dev/none",
    allowVolumeExpansion=True,
    volumeBindingMode="Immediate",
)


def has_claim(size: str, *, name: str = "data") -> Any:
    """Return a condition: the claim has the size, and the status says that all is well."""

    def check(record: NamespaceRecord) -> bool:
        claim = record.get(PVC, name)
        held = ((claim or {}).get("status") or {}).get("capacity") or {}
        alive = claim is not None and not is_deleting(claim)
        return alive and held.get("storage") == size and is_observed(record.get(DEMO_VOLUME, name))

    return check


def check_sizes(history: Sequence[Version]) -> list[str]:
    """Check that no claim is ever asked to be smaller than it was."""
    sizes: dict[str, Any] = {}
    found = []
    for version in history:
        if version.kind != PVC:
            continue
        uid = version.manifest["metadata"]["uid"]
        size = parse_quantity(version.manifest["spec"]["resources"]["requests"]["storage"])
        if size < sizes.get(uid, size):
            found.append(f"claim {version.name} shrank to {size}")
        sizes[uid] = size
    return found


def check_kept(history: Sequence[Version]) -> list[str]:
    """Check that nobody deletes a claim under reclaimPolicy Retain."""
    policies: dict[str, str] = {}
    found = []
    for version in history:
        if version.kind == DEMO_VOLUME:
            policies[version.name] = version.manifest["spec"].get("reclaimPolicy", "Delete")
            continue
        kept = policies.get(version.name) == "Retain" and not is_foreign(version)
        if kept and version.phase != "lose" and is_deleting(version.manifest):
            found.append(f"claim {version.name} is deleted although it must be kept")
    return found


async def _create(user: User) -> None:
    await user.create(DEMO_VOLUME, "data", {"size": 10, "storageClassName": "sweep"})


async def _create_kept(user: User) -> None:
    spec = {"size": 10, "storageClassName": "sweep", "reclaimPolicy": "Retain"}
    await user.create(DEMO_VOLUME, "data", spec)


_grow = change(DEMO_VOLUME, "data", size=20)
_probe = change(DEMO_VOLUME, "data", size=30)
_delete = remove(DEMO_VOLUME, "data")


def _only_claim(record: NamespaceRecord) -> bool:
    claims = record.list(PVC)
    return len(record.live) == 1 and len(claims) == 1 and not is_deleting(claims[0])


def _is_kept(record: NamespaceRecord) -> bool:
    claim = record.get(PVC, "data")
    owned = bool(claim and claim["metadata"].get("ownerReferences"))
    return has_claim("20Gi")(record) and not owned


def _is_owned(record: NamespaceRecord) -> bool:
    claim = record.get(PVC, "data")
    return has_claim("20Gi")(record) and bool(claim and claim["metadata"].get("ownerReferences"))


def _blur_names(text: str) -> str:
    """Take the part out of the names of snapshots that follows from the UID of a claim."""
    return _FINAL.sub("-final-uid", text)


def _fold_history(state: State) -> State:
    """Leave out annotations that tell what a claim was before: retained, or adopted."""
    for value in state.values():
        annotations = value["metadata"].get("annotations") or {}
        for name in (SYNC_OPTIONS, ADOPTED_BY):
            annotations.pop(name, None)
        if not annotations:
            value["metadata"].pop("annotations", None)
    return state


async def _create_archived(user: User) -> None:
    spec = {"size": 10, "storageClassName": "sweep", "reclaimPolicy": "Snapshot"}
    await user.create(DEMO_VOLUME, "data", spec)


async def _create_again(user: User) -> None:
    await _create(user)


async def _adopt(user: User) -> None:
    spec = {"spec": {"adopt": "IfMatching", "reclaimPolicy": "Delete", "size": 20}}
    await user.patch(DEMO_VOLUME, "data", spec)


async def _restore(user: User) -> None:
    (snapshot,) = await user.list(VOLUME_SNAPSHOT)
    source = {"snapshot": snapshot["metadata"]["name"]}
    spec = {"size": 10, "storageClassName": "sweep", "source": source}
    await user.create(DEMO_VOLUME, "data", spec)


def _only_snapshot(record: NamespaceRecord) -> bool:
    snapshots = record.list(VOLUME_SNAPSHOT)
    return len(record.live) == len(snapshots) == 1


def _in_conflict(record: NamespaceRecord) -> bool:
    claim, volume = record.get(PVC, "data"), record.get(DEMO_VOLUME, "data")
    free = bool(claim and not claim["metadata"].get("ownerReferences"))
    return (
        free
        and is_observed(volume, ready=False)
        and any(
            condition["type"] == "Conflict" and condition["status"] == "True"
            for condition in (volume or {})["status"].get("conditions") or ()
        )
    )


_SNAPSHOTTER: Final = show_status(VOLUME_SNAPSHOT, lambda _, __: {"readyToUse": True})


def _build(name: str, phases: tuple[Phase, ...]) -> Workload:
    return Workload(
        id=name,
        operator=OPERATOR,
        rules=OPERATOR.rules(),
        crds=(build_crd(DemoVolume), build_open_crd(VOLUME_SNAPSHOT)),
        primary=DEMO_VOLUME,
        children=(PVC, POD, VOLUME_SNAPSHOT),
        phases=phases,
        invariants=(check_sizes, check_kept),
        initial_objects=((STORAGE_CLASS, _CLASS),),
        rewrite=_blur_names,
        fold=_fold_history,
        components=(*EVERYBODY, _SNAPSHOTTER),
    )


WORKLOADS: Final = (
    _build(
        "delete",
        (
            Phase("create", _create, has_claim("10Gi")),
            Phase("grow", _grow, has_claim("20Gi")),
            Phase("lose", remove(PVC, "data"), has_claim("20Gi")),
            Phase("keep", change(DEMO_VOLUME, "data", reclaimPolicy="Retain"), _is_kept),
            Phase("let-go", change(DEMO_VOLUME, "data", reclaimPolicy="Delete"), _is_owned),
            Phase("probe", _probe, has_claim("30Gi"), quiet=True),
            Phase("delete", _delete, is_empty),
        ),
    ),
    _build(
        "retain",
        (
            Phase("create", _create_kept, has_claim("10Gi")),
            Phase("grow", _grow, has_claim("20Gi")),
            Phase("delete", _delete, _only_claim),
            # The same name again takes nothing over that is not its own.
            Phase("again", _create_again, _in_conflict),
            Phase("adopt", _adopt, _is_owned),
            Phase("probe", _probe, has_claim("30Gi"), quiet=True),
            Phase("end", _delete, is_empty),
        ),
    ),
    _build(
        "snapshot",
        (
            Phase("create", _create_archived, has_claim("10Gi")),
            Phase("delete", _delete, _only_snapshot),
            Phase("restore", _restore, has_claim("10Gi")),
            Phase("probe", _probe, has_claim("30Gi"), quiet=True),
            Phase("end", _delete, _only_snapshot),
        ),
    ),
)
