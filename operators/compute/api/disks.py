"""The root disk, a part of Instance."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from libs.common.crd import DnsSubdomain, KubernetesModel, ListAtomic, Timestamp, Uid
from operators.compute.api.size import DiskAmount


class AccessMode(StrEnum):
    """AccessMode is how the nodes of a cluster can mount a disk."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class VolumeMode(StrEnum):
    """VolumeMode is how a disk is stored."""

    FILESYSTEM = "Filesystem"
    BLOCK = "Block"


class RootDisk(KubernetesModel):
    """RootDisk describes how a root disk is created, at first and at a Rebuild."""

    size: DiskAmount | None = None
    """size is the size of the root disk. Defaults to the disk size of the InstanceSize."""
    storage_class_name: DnsSubdomain | None = None
    """storageClassName is the StorageClass of the root disk. Defaults to the default StorageClass
    of the cluster."""
    access_modes: Annotated[list[AccessMode], ListAtomic(), Field(max_length=3)] = []
    """accessModes are the access modes of the root disk. Live migration needs ReadWriteMany.
    Defaults to the access modes in the StorageProfile of the StorageClass; required if CDI does
    not know the StorageClass."""
    volume_mode: VolumeMode | None = None
    """volumeMode is Filesystem or Block. Defaults to the volume mode in the StorageProfile of the
    StorageClass."""
    keep_replaced_seconds: Annotated[int, Field(ge=0, le=31_536_000)] = 86_400
    """keepReplacedSeconds is how long a replaced root disk is kept if nothing has shown that the
    guest boots from the new one. If a probe or the guest agent has shown it, the replaced disk is
    deleted immediately. Takes effect immediately. Defaults to 86400 (one day)."""


class RootDiskStatus(KubernetesModel):
    """RootDiskStatus names the disk that the machine boots from."""

    name: DnsSubdomain
    """name is the name of the DataVolume and of its PersistentVolumeClaim."""
    uid: Uid = ""
    """uid is the UID of the DataVolume. Empty after CDI has deleted the DataVolume."""


class KeptDisk(KubernetesModel):
    """KeptDisk is a replaced root disk that has not been deleted yet."""

    name: DnsSubdomain
    """name is the name of the DataVolume."""
    since: Timestamp
    """since is when the machine was first seen to run from another disk."""
