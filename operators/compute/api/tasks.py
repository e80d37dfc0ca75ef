"""Options of each type of Operation."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from libs.common.crd import DnsSubdomain, KubernetesModel, LabelMap, Rule
from libs.contracts.images import Image
from operators.compute.api.instancetypes import Instancetype, SizeRef


class TimeoutAction(StrEnum):
    """TimeoutAction defines what happens when a guest does not reboot on request."""

    FAIL = "Fail"
    REBOOT = "Reboot"


ReadySeconds = Annotated[int, Field(ge=10, le=86_400)]
"""Time that a machine has to become ready on another disk, in seconds."""


class Rebuild(KubernetesModel):
    """Rebuild defines the new root disk of the machine."""

    image: Image | None = None
    """image is the image of the new disk. Defaults to the image of the Instance."""
    ready_seconds: ReadySeconds = 900
    """readySeconds is the time that the machine can take to become ready on the new disk; after
    that, the old disk is used again."""


class Resize(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.size) != has(self.instancetype)",
            "exactly one of size and instancetype is needed",
        ),
    ),
):
    """Resize defines the new size of the machine."""

    size: DnsSubdomain | None = None
    """size is the name of an InstanceSize. Either size or instancetype is needed."""
    instancetype: Instancetype | None = None
    """instancetype names an instancetype of KubeVirt. The Instance must have spec.rootDisk.size."""
    live_seconds: Annotated[int, Field(ge=0, le=3600)] = 120
    """liveSeconds is how long KubeVirt can take to change the running guest before the machine is
    restarted. It is restarted immediately if KubeVirt says that it cannot. Defaults to 120."""

    @property
    def size_ref(self) -> SizeRef:
        """What defines the new processors and memory."""
        return self.size or "" if self.instancetype is None else self.instancetype


class Migrate(KubernetesModel):
    """Migrate defines the node to which the guest moves."""

    node_selector: LabelMap = {}
    """nodeSelector are labels that the new node must have. Defaults to any node."""


class SoftReboot(KubernetesModel):
    """SoftReboot defines how long a guest can take to reboot by itself."""

    wait_seconds: Annotated[int, Field(ge=5, le=3600)] = 120
    """waitSeconds is the time to wait for a sign of the reboot before the request is repeated."""
    on_timeout: TimeoutAction = TimeoutAction.FAIL
    """onTimeout is Fail, or Reboot to end the run as a Reboot does."""


class Snapshot(KubernetesModel):
    """Snapshot defines the name of the snapshot of the machine."""

    name: DnsSubdomain | None = None
    """name is the name of the VirtualMachineSnapshot. Defaults to the name of the Operation."""


class Restore(KubernetesModel):
    """Restore names the snapshot from which the root disk is restored."""

    snapshot: DnsSubdomain
    """snapshot is the name of a VirtualMachineSnapshot in the same namespace."""
    ready_seconds: ReadySeconds = 900
    """readySeconds is the time that the machine can take to become ready on the restored disk;
    after that, the previous disk is used again."""


class Rescue(KubernetesModel):
    """Rescue boots the machine from another image.

    Its root disk is attached as an additional disk.
    """

    image: Image
    """image is the image of the rescue disk."""
    duration_seconds: Annotated[int, Field(ge=10, le=604_800)] = 3600
    """durationSeconds is how long the rescue lasts, unless spec.cancel ends it before."""
    ready_seconds: ReadySeconds = 900
    """readySeconds is the time that the machine can take to become ready on the rescue disk; after
    that, its own disk is used again."""
