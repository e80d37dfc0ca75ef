"""Which volumes of a machine its storage can take snapshots of. Pure except for `read_catalog`.

`getVolumeSnapshotStatus` in storage/snapshot/snapshot.go; recordings `03-vmsnapshot`, `05-vm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lab.kubevirt_sim.launcher import claim_of
from lab.kubevirt_sim.storage import PROVISIONER
from libs.common.kinds import PVC, STORAGE_CLASS, Kind, Manifest, key_of
from libs.common.reading import text_at
from libs.common.runtime import Context
from libs.contracts.snapshots import SNAPSHOT_GROUP

VOLUME_SNAPSHOT_CLASS: Final = Kind(
    SNAPSHOT_GROUP, "v1", "VolumeSnapshotClass", "volumesnapshotclasses", namespaced=False
)


@dataclass(frozen=True, slots=True)
class Catalog:
    """What decides whether a volume can be part of a snapshot.

    Attributes:
        classes: StorageClass of each claim, by namespace and name.
        provisioners: Provisioner of each StorageClass.
        drivers: Drivers that have a VolumeSnapshotClass.
    """

    classes: Mapping[str, str]
    provisioners: Mapping[str, str]
    drivers: frozenset[str]


def read_catalog(ctx: Context) -> Catalog:
    """Read the catalog from the cache of a controller."""
    served = ctx.is_served(VOLUME_SNAPSHOT_CLASS)
    drivers = (
        [text_at(each, "driver") for each in ctx.list(VOLUME_SNAPSHOT_CLASS)] if served else ()
    )
    return Catalog(
        {str(key_of(each)): text_at(each, "spec", "storageClassName") for each in ctx.list(PVC)},
        {key_of(each).name: text_at(each, "provisioner") for each in ctx.list(STORAGE_CLASS)},
        # Disks that the simulator provides can always be part of a snapshot.
        frozenset({PROVISIONER, *drivers}),
    )


def evaluate_volumes(
    volumes: Sequence[Mapping[str, Any]], namespace: str, catalog: Catalog
) -> list[Manifest]:
    """Build `status.volumeSnapshotStatuses` of a machine."""
    return [_evaluate(volume, namespace, catalog) for volume in volumes]


def _evaluate(volume: Mapping[str, Any], namespace: str, catalog: Catalog) -> Manifest:
    name, claim = text_at(volume, "name"), claim_of(volume)
    if not claim:
        reason = f"Snapshot is not supported for this volumeSource type [{name}]"
        return {"name": name, "enabled": False, "reason": reason}
    storage_class = catalog.classes.get(f"{namespace}/{claim}")
    if storage_class is None:
        return {"name": name, "enabled": False, "reason": "PVC not found"}
    if catalog.provisioners.get(storage_class) in catalog.drivers:
        return {"name": name, "enabled": True}
    reason = (
        "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass "
        f"[{storage_class}] [{name}]"
    )
    return {"name": name, "enabled": False, "reason": reason}
