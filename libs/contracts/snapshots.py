"""View of VolumeSnapshot, a kind that a cluster has only when its CRDs were installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import is_set_at, map_at, quantity_at, text_at, text_map_at

SNAPSHOT_GROUP: Final = "snapshot.storage.k8s.io"
"""API group of snapshots."""
VOLUME_SNAPSHOT: Final = Kind(SNAPSHOT_GROUP, "v1", "VolumeSnapshot", "volumesnapshots")
"""The kind; ask whether it is served before its objects are asked for."""


@dataclass(frozen=True, slots=True)
class VolumeSnapshotView:
    """The parts of a VolumeSnapshot that operators use.

    Attributes:
        key: Namespace and name.
        uid: Which incarnation it is.
        deleting: Whether its deletion was asked for.
        annotations: Annotations, as they are.
        source_claim: Claim that it is taken of; empty for one that was imported.
        ready: Whether a volume can be made of it, and its source be given up.
        restore_size: Bytes that a volume made of it needs at least; None while not known.
        error: What went wrong last, in the words of the driver; may pass by itself.
    """

    key: Key
    uid: str
    deleting: bool
    annotations: Mapping[str, str]
    source_claim: str
    ready: bool
    restore_size: Fraction | None
    error: str

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Read a snapshot; fields that do not fit count as absent."""
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            annotations=text_map_at(map_at(manifest, "metadata"), "annotations"),
            source_claim=text_at(manifest, "spec", "source", "persistentVolumeClaimName"),
            ready=is_set_at(manifest, "status", "readyToUse"),
            restore_size=quantity_at(manifest, "status", "restoreSize"),
            error=text_at(manifest, "status", "error", "message"),
        )
