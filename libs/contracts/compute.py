"""Views of Instance and Operation, for operators that follow virtual machines.

The VirtualMachine of an Instance, its VirtualMachineInstance and its launcher pods live in the
namespace of the Instance. The first two have its name; all of them carry `INSTANCE_UID_LABEL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from libs.common.conditions import READY
from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import (
    condition_at,
    holds_at,
    map_at,
    maps_at,
    text_at,
    text_map_at,
    time_at,
)

COMPUTE_GROUP: Final = "compute.slipway.dev"
"""API group of instances and of operations on them."""
INSTANCE: Final = Kind(COMPUTE_GROUP, "v1alpha1", "Instance", "instances")
"""A virtual machine with its disk, its network and its address."""
INSTANCE_SIZE: Final = Kind(
    COMPUTE_GROUP, "v1alpha1", "InstanceSize", "instancesizes", namespaced=False
)
"""How much of everything an Instance gets."""
OPERATION: Final = Kind(COMPUTE_GROUP, "v1alpha1", "Operation", "operations")
"""A task on an Instance that is done once: a reboot, a rebuild, a resize, a migration."""

INSTANCE_LABEL: Final = f"{COMPUTE_GROUP}/instance"
"""Label on every object that is created for an Instance: its name, cut to 63 characters."""
INSTANCE_UID_LABEL: Final = f"{COMPUTE_GROUP}/instance-uid"
"""Label on VirtualMachine, VirtualMachineInstance, launcher pod and disk: UID of the Instance.

The template of the VM has it from the beginning, because KubeVirt adds no new label to a running
machine. Operators can therefore select by it without touching the machine."""
NETWORK_LABEL: Final = f"{COMPUTE_GROUP}/network"
"""Label on the pods of an Instance that names a Network: the name, as `label_value` cuts it.

Policies of a Network select by it. The template of the VM has it from the beginning; pods that
were started by a release without the label get it at the next start of their machine."""

FINAL_PHASES: Final = frozenset({"Succeeded", "Failed", "Cancelled"})
"""Phases of an Operation that it never leaves."""


@dataclass(frozen=True, slots=True)
class InstanceView:
    """The parts of an Instance that other operators use.

    Attributes:
        key: Namespace and name; the VirtualMachine has the same.
        network: Name of the Network that it is attached to; empty for the pod network.
        firewall: Name of the Firewall that protects it; empty for none.
        stopped: Whether the spec asks for a stopped machine.
        phase: One-word summary for people; code must read the conditions.
        ready: Whether Ready is True for the current generation.
        vmi_uid: UID of the running VirtualMachineInstance; empty while none runs.
        node: Node that the VirtualMachineInstance runs on; empty while none runs.
        private_ip: Address on its network; empty while not known.
        operation: Name of the Operation that is in progress on it; empty for none.
        ready_since: Last transition time of Ready; None before the first.
        root_disk: Disk that the machine boots from; each Rebuild makes another one.
        version: Resource version of the object that was parsed.
        evicting: Whether its node is being drained.
        migratable: Whether it can move to another node while it runs.
        eviction_strategy: What a drain of its node does; empty if the spec does not say it.
    """

    key: Key
    uid: str
    deleting: bool
    labels: Mapping[str, str]
    size: str
    network: str
    firewall: str
    stopped: bool
    phase: str
    ready: bool
    message: str
    vmi_uid: str
    node: str
    private_ip: str
    operation: str
    annotations: Mapping[str, str]
    ready_since: datetime | None
    root_disk: str
    version: str
    evicting: bool
    migratable: bool
    eviction_strategy: str

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse an Instance; invalid fields count as absent."""
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            labels=text_map_at(map_at(manifest, "metadata"), "labels"),
            size=text_at(manifest, "spec", "size"),
            network=text_at(manifest, "spec", "networkRef", "name"),
            firewall=text_at(manifest, "spec", "firewallRef", "name"),
            stopped=text_at(manifest, "spec", "power") == "Stopped",
            phase=text_at(manifest, "status", "phase"),
            ready=holds_at(manifest, READY),
            message=text_at(condition_at(manifest, READY), "message"),
            vmi_uid=text_at(manifest, "status", "vmiUID"),
            node=text_at(manifest, "status", "nodeName"),
            private_ip=text_at(manifest, "status", "privateIP"),
            operation=text_at(manifest, "status", "operation", "name"),
            annotations=text_map_at(manifest, "metadata", "annotations"),
            ready_since=time_at(condition_at(manifest, READY), "lastTransitionTime"),
            root_disk=text_at(manifest, "status", "rootDisk", "name"),
            version=text_at(manifest, "metadata", "resourceVersion"),
            evicting=holds_at(manifest, "Evicting"),
            migratable=holds_at(manifest, "Migratable"),
            eviction_strategy=text_at(manifest, "spec", "evictionStrategy"),
        )


@dataclass(frozen=True, slots=True)
class OperationView:
    """The parts of an Operation that other operators use.

    Attributes:
        type: Type of the operation, such as `Reboot`.
        phase: `Pending`, `Running`, `RollingBack`, or one of `FINAL_PHASES`; empty at first.
        step: Current step; empty before the first.
        message: Explanation of phase and step, for people.
    """

    key: Key
    uid: str
    deleting: bool
    labels: Mapping[str, str]
    type: str
    instance: str
    phase: str
    step: str
    message: str

    @property
    def finished(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self.phase in FINAL_PHASES

    @property
    def succeeded(self) -> bool:
        """Whether it has ended successfully."""
        return self.phase == "Succeeded"

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse an Operation; invalid fields count as absent."""
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            labels=text_map_at(map_at(manifest, "metadata"), "labels"),
            type=text_at(manifest, "spec", "type"),
            instance=text_at(manifest, "spec", "targetRef", "name"),
            phase=text_at(manifest, "status", "phase"),
            step=text_at(manifest, "status", "step"),
            message=text_at(manifest, "status", "message"),
        )


def instance_uids(manifest: Mapping[str, object], *path: str) -> frozenset[str]:
    """Return the UIDs in a list of `{name, uid}`, such as `status.instances` of a Firewall."""
    return frozenset(
        uid for entry in maps_at(manifest, *path) if isinstance(uid := entry.get("uid"), str)
    )
