"""View of VolumeSnapshot, a kind that a cluster has only if the snapshot CRDs are installed."""

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
"""Optional kind: check that the cluster serves it before requesting its objects."""


@dataclass(frozen=True, slots=True)
class VolumeSnapshotView:
    """The parts of a VolumeSnapshot that operators use.

    Attributes:
        source_claim: Claim that it was taken from; empty for an imported snapshot.
        ready: Whether a volume can be restored from it. Until then the snapshot controller
            protects its source claim from deletion.
        restore_size: Least bytes of a volume that is restored from it; None while not known.
        error: Last error, as reported by the driver; it may resolve by itself.
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
        """Parse a snapshot; invalid fields count as absent."""
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
