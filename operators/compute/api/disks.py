"""The root disk, a part of Instance."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from libs.common.crd import DnsSubdomain, KubernetesModel, Timestamp, Uid
from libs.contracts.disks import RootDiskTemplate


class RootDisk(RootDiskTemplate):
    """RootDisk describes how a root disk is created, both initially and at a Rebuild."""

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
