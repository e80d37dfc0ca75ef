"""Storage of root disks: a part of the specs of Instance and KubernetesCluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import HUGE, DnsSubdomain, KubernetesModel, ListAtomic, Quantity, Rule

AT_LEAST: Final = (
    f"{HUGE.format('self')} || !isQuantity(string(self)) || "
    "quantity(string(self)).compareTo(quantity('{0}')) >= 0"
)
"""Rule that an amount is not below another one, which replaces `{0}`."""

DiskAmount = Annotated[Quantity, Rule(AT_LEAST.format("1Mi"), "must be at least 1Mi")]
"""The size of a disk; less is a number whose unit was forgotten."""


class AccessMode(StrEnum):
    """AccessMode is how the nodes of a cluster can mount a disk."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class VolumeMode(StrEnum):
    """VolumeMode is how a disk is stored."""

    FILESYSTEM = "Filesystem"
    BLOCK = "Block"


class RootDiskTemplate(KubernetesModel):
    """RootDiskTemplate describes the storage of a root disk."""

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
