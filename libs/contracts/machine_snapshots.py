"""View of VirtualMachineSnapshot, and of the VolumeSnapshots that it consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import is_set_at, map_at, maps_at, text_at, text_map_at, texts_at

MACHINE_SNAPSHOT_GROUP: Final = "snapshot.kubevirt.io"
"""API group of snapshots of machines."""
MACHINE_SNAPSHOT: Final = Kind(
    MACHINE_SNAPSHOT_GROUP, "v1beta1", "VirtualMachineSnapshot", "virtualmachinesnapshots"
)
"""A request for a snapshot of a machine with all its volumes."""
MACHINE_SNAPSHOT_CONTENT: Final = Kind(
    MACHINE_SNAPSHOT_GROUP,
    "v1beta1",
    "VirtualMachineSnapshotContent",
    "virtualmachinesnapshotcontents",
)
"""Content of a snapshot: the saved machine and its VolumeSnapshots."""


class MachineSnapshotPhase(StrEnum):
    """Phases of a snapshot of a machine."""

    IN_PROGRESS = "InProgress"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETING = "Deleting"
    UNKNOWN = "Unknown"


class SnapshotIndication(StrEnum):
    """How a snapshot was taken; only the indications that operators report."""

    ONLINE = "Online"
    GUEST_AGENT = "GuestAgent"
    NO_GUEST_AGENT = "NoGuestAgent"


@dataclass(frozen=True, slots=True)
class MachineSnapshotView:
    """The parts of a VirtualMachineSnapshot that operators use.

    Attributes:
        machine: Name of the machine that it is taken of.
        phase: Phase as KubeVirt reports it. See `MachineSnapshotPhase`.
        ready: Whether KubeVirt has finished it. It may still contain no volume: see
            `find_volume_snapshots`.
        content: Name of its VirtualMachineSnapshotContent; empty before there is one.
        indications: How it was taken. See `SnapshotIndication`.
        excluded: Volumes of the machine that are not in it, as reported by KubeVirt.
        error: Last error, as reported by KubeVirt.
    """

    key: Key
    uid: str
    deleting: bool
    annotations: Mapping[str, str]
    machine: str
    phase: str
    ready: bool
    content: str
    indications: tuple[str, ...]
    excluded: tuple[str, ...]
    error: str

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a snapshot; invalid fields count as absent."""
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            annotations=text_map_at(map_at(manifest, "metadata"), "annotations"),
            machine=text_at(manifest, "spec", "source", "name"),
            phase=text_at(manifest, "status", "phase"),
            ready=is_set_at(manifest, "status", "readyToUse"),
            content=text_at(manifest, "status", "virtualMachineSnapshotContentName"),
            indications=texts_at(manifest, "status", "indications"),
            excluded=texts_at(manifest, "status", "snapshotVolumes", "excludedVolumes"),
            error=text_at(manifest, "status", "error", "message"),
        )

    @property
    def failed(self) -> bool:
        """Whether it failed for good and never becomes ready."""
        return self.phase == MachineSnapshotPhase.FAILED


def find_volume_snapshots(content: Manifest) -> dict[str, str]:
    """Find the VolumeSnapshots that a snapshot of a machine consists of.

    Returns:
        Names of VolumeSnapshots by volume of the machine, without volumes that were not saved.
    """
    backups = maps_at(content, "spec", "volumeBackups")
    found = {text_at(each, "volumeName"): text_at(each, "volumeSnapshotName") for each in backups}
    return {volume: snapshot for volume, snapshot in found.items() if volume and snapshot}


def find_snapshot_refusals(machine: Manifest) -> dict[str, str]:
    """Find the disks of a VirtualMachine that KubeVirt cannot take a snapshot of.

    Returns:
        Reasons of KubeVirt by volume, without disks that it can save or has not checked yet, and
        without volumes that are no disks of the user, such as cloud-init.
    """
    volumes = maps_at(machine, "spec", "template", "spec", "volumes")
    disks = {
        text_at(each, "name")
        for each in volumes
        if map_at(each, "dataVolume") or map_at(each, "persistentVolumeClaim")
    }
    return {
        text_at(each, "name"): text_at(each, "reason") or "KubeVirt gives no reason"
        for each in maps_at(machine, "status", "volumeSnapshotStatuses")
        if text_at(each, "name") in disks and each.get("enabled") is False
    }
