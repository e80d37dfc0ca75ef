"""KubeVirt: its kinds, phases and condition types, and views of machines and their instances.

A VirtualMachine (VM) is the desired state. At each start KubeVirt creates a new
VirtualMachineInstance (VMI) of the same name: only the UID tells that a restart happened. The guest
runs in a virt-launcher pod (`libs.contracts.launchers`), and in a second one during a live
migration (`libs.contracts.migrations`).

Phases and reasons are plain texts: newer releases add values, and a view must not fail on those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import (
    is_set_at,
    map_at,
    maps_at,
    text_at,
    text_map_at,
)
from libs.contracts.migrations import MigrationStateView
from libs.contracts.states import ConditionsView

KUBEVIRT_GROUP: Final = "kubevirt.io"
"""API group of machines."""
SUBRESOURCES_GROUP: Final = "subresources.kubevirt.io"
"""API group of the actions on machines: an aggregated API without stored objects."""
KUBEVIRT: Final = Kind(KUBEVIRT_GROUP, "v1", "KubeVirt", "kubevirts")
"""The installation of KubeVirt; a cluster has one."""
VIRTUAL_MACHINE: Final = Kind(KUBEVIRT_GROUP, "v1", "VirtualMachine", "virtualmachines")
"""A machine, running or not."""
VIRTUAL_MACHINE_INSTANCE: Final = Kind(
    KUBEVIRT_GROUP, "v1", "VirtualMachineInstance", "virtualmachineinstances"
)
"""One run of a machine; it has no status subresource."""
VIRTUAL_MACHINE_INSTANCE_MIGRATION: Final = Kind(
    KUBEVIRT_GROUP, "v1", "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations"
)
"""A request to move a running instance to another node."""

RUNNING_MACHINE_ACTIONS: Final = Kind(
    SUBRESOURCES_GROUP, "v1", "VirtualMachineInstance", "virtualmachineinstances"
)
"""Actions on an instance, such as `softreboot`: only request paths and RBAC rights, no objects."""

VM_CONTROLLER_FINALIZER: Final = "kubevirt.io/virtualMachineControllerFinalize"
"""Finalizer of KubeVirt on machines and instances."""
CREATED_BY: Final = "kubevirt.io/created-by"
"""Label of launcher pods: UID of the instance."""
ALLOW_BRIDGE_MIGRATION: Final = "kubevirt.io/allow-pod-bridge-network-live-migration"
"""Annotation of a VM template that allows live migration with a bridged pod network."""
NODE_NAME: Final = "kubevirt.io/nodeName"
"""Label of an instance: the node that runs the guest."""
INSTANCE_LABEL: Final = "vmi.kubevirt.io/id"
"""Label of launcher pods: the name of the instance."""


class RunStrategy(StrEnum):
    """Run strategies of KubeVirt; operators here write `Always`, `Once` and `Halted`."""

    ALWAYS = "Always"
    HALTED = "Halted"
    MANUAL = "Manual"
    RERUN_ON_FAILURE = "RerunOnFailure"
    ONCE = "Once"
    WAIT_AS_RECEIVER = "WaitAsReceiver"


class VmiPhase(StrEnum):
    """Phases of an instance; a new instance has the empty phase."""

    UNSET = ""
    PENDING = "Pending"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    WAITING_FOR_SYNC = "WaitingForSync"
    UNKNOWN = "Unknown"


FINAL_PHASES: Final = frozenset({VmiPhase.SUCCEEDED, VmiPhase.FAILED})
"""Phases that an instance never leaves."""


class PrintableStatus(StrEnum):
    """Statuses that KubeVirt prints for people.

    `Stopped` may appear for an instant between two instances of a restarting machine.
    """

    TERMINATING = "Terminating"
    STOPPING = "Stopping"
    MIGRATING = "Migrating"
    PAUSED = "Paused"
    RUNNING = "Running"
    PVC_NOT_FOUND = "ErrorPvcNotFound"
    DATA_VOLUME_ERROR = "DataVolumeError"
    UNSCHEDULABLE = "ErrorUnschedulable"
    PROVISIONING = "Provisioning"
    WAITING_FOR_VOLUME_BINDING = "WaitingForVolumeBinding"
    ERR_IMAGE_PULL = "ErrImagePull"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    STARTING = "Starting"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    STOPPED = "Stopped"
    WAITING_FOR_RECEIVER = "WaitingForReceiver"
    UNKNOWN = "Unknown"


class VmCondition(StrEnum):
    """Conditions of machines and instances that operators act upon."""

    READY = "Ready"
    FAILURE = "Failure"
    PAUSED = "Paused"
    AGENT_CONNECTED = "AgentConnected"
    LIVE_MIGRATABLE = "LiveMigratable"
    RESTART_REQUIRED = "RestartRequired"
    SYNCHRONIZED = "Synchronized"
    EVICTION_REQUESTED = "EvictionRequested"
    POD_SCHEDULED = "PodScheduled"
    HOT_VCPU_CHANGE = "HotVCPUChange"
    HOT_MEMORY_CHANGE = "HotMemoryChange"


@dataclass(frozen=True, slots=True)
class VmView:
    """The parts of a VirtualMachine that operators use.

    Attributes:
        resource_version: Resource version of the object that was parsed.
        observed_strategy: Run strategy that KubeVirt reconciled last; empty before its first
            status, and always empty in releases that do not report it.
        run_strategy: Run strategy, also if it is set through the old field `running`.
        ready: Whether the instance is running and ready.
        printable_status: Status for people; code must not base decisions on it.
        disks: Names of DataVolumes by name of the volume in the template.
        start_failures: How many instances in a row failed before they were running.
        retry_after: Time before which KubeVirt starts no further instance; empty for none.
    """

    key: Key
    uid: str
    resource_version: str
    generation: int
    observed_strategy: str
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    run_strategy: str
    created: bool
    ready: bool
    printable_status: str
    disks: Mapping[str, str]
    start_failures: int
    retry_after: str
    conditions: ConditionsView

    @property
    def halted(self) -> bool:
        """Whether the spec wants the machine off, KubeVirt has seen that, and no instance exists.

        `status.observedGeneration` cannot tell this. It is the generation that the running instance
        was created from, is written only while an instance exists, and stays behind permanently
        after a change of the template with which no instance was started. KubeVirt writes
        `status.runStrategy` in every reconcile. Releases without that field leave only
        `status.printableStatus`.
        """
        if self.run_strategy != RunStrategy.HALTED or self.created:
            return False
        if self.observed_strategy:
            return self.observed_strategy == RunStrategy.HALTED
        return self.printable_status == PrintableStatus.STOPPED

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a machine; invalid fields count as absent."""
        metadata = map_at(manifest, "metadata")
        status = map_at(manifest, "status")
        failure = map_at(status, "startFailure")
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            resource_version=text_at(metadata, "resourceVersion"),
            generation=_number_at(metadata, "generation"),
            observed_strategy=text_at(status, "runStrategy"),
            deleting=is_deleting(manifest),
            labels=text_map_at(metadata, "labels"),
            annotations=text_map_at(metadata, "annotations"),
            run_strategy=_parse_strategy(manifest),
            created=is_set_at(status, "created"),
            ready=is_set_at(status, "ready"),
            printable_status=text_at(status, "printableStatus"),
            disks=_parse_disks(manifest),
            start_failures=_number_at(failure, "consecutiveFailCount"),
            retry_after=text_at(failure, "retryAfterTimestamp"),
            conditions=ConditionsView.parse(manifest),
        )


@dataclass(frozen=True, slots=True)
class VmiView:
    """The parts of a VirtualMachineInstance that operators use.

    Attributes:
        key: Namespace and name; the name is that of the machine.
        uid: UID of the instance; each run of the machine has another one.
        created: Creation timestamp as text; a later run has a later one.
        phase: Phase as KubeVirt reports it. See `VmiPhase`.
        reason: Why it failed, in one word; empty otherwise.
        node_name: Node that runs the guest; empty before it is scheduled.
        evacuation_node: Node that it should leave; empty for none.
        eviction_strategy: What an eviction does; empty for the default of the cluster.
        active_pods: Node of each launcher pod in use, by pod UID; two during a migration.
        on_pod_network: Whether the guest has an interface on the network of its launcher pod, so
            that the pod IP reaches it.
        migration: Current or last live migration; None before the first.
    """

    key: Key
    uid: str
    created: str
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    phase: str
    reason: str
    node_name: str
    evacuation_node: str
    eviction_strategy: str
    active_pods: Mapping[str, str]
    on_pod_network: bool
    migration: MigrationStateView | None
    conditions: ConditionsView

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse an instance; invalid fields count as absent."""
        metadata, status = map_at(manifest, "metadata"), map_at(manifest, "status")
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            created=text_at(metadata, "creationTimestamp"),
            deleting=is_deleting(manifest),
            labels=text_map_at(metadata, "labels"),
            annotations=text_map_at(metadata, "annotations"),
            phase=text_at(status, "phase"),
            reason=text_at(status, "reason"),
            node_name=text_at(status, "nodeName"),
            evacuation_node=text_at(status, "evacuationNodeName"),
            eviction_strategy=text_at(manifest, "spec", "evictionStrategy"),
            active_pods=text_map_at(status, "activePods"),
            on_pod_network=_is_on_pod_network(map_at(manifest, "spec")),
            migration=MigrationStateView.parse(status),
            conditions=ConditionsView.parse(manifest),
        )

    @property
    def launcher(self) -> str:
        """Name of the launcher pod to which the guest moved last; empty if it has never moved.

        The pods that it left remain as completed pods until the run is replaced.
        """
        state = self.migration
        if state is None:
            return ""
        return state.target_pod if state.completed and not state.failed else state.source_pod

    @property
    def final(self) -> bool:
        """Whether the run has ended."""
        return self.phase in FINAL_PHASES

    @property
    def running(self) -> bool:
        """Whether the guest runs; the condition `Ready` tells whether it responds."""
        return self.phase == VmiPhase.RUNNING

    @property
    def ready(self) -> bool:
        """Whether the guest runs and its pod is ready."""
        return self.running and self.conditions.holds(VmCondition.READY)

    @property
    def migrating(self) -> bool:
        """Whether a live migration has started and not ended."""
        return self.migration is not None and self.migration.under_way


def disk_claims_of(manifest: Manifest) -> dict[str, bool]:
    """Return the claims that a machine or an instance mounts, and whether it shares their disks.

    A DataVolume has the name of its claim.
    """
    spec = map_at(manifest, "spec")
    spec = map_at(spec, "template", "spec") or spec
    disks = maps_at(spec, "domain", "devices", "disks")
    shared = {text_at(disk, "name") for disk in disks if is_set_at(disk, "shareable")}
    claims: dict[str, bool] = {}
    for volume in maps_at(spec, "volumes"):
        name = text_at(volume, "persistentVolumeClaim", "claimName")
        if name := name or text_at(volume, "dataVolume", "name"):
            claims[name] = text_at(volume, "name") in shared
    return claims


def _parse_strategy(manifest: Manifest) -> str:
    strategy = text_at(manifest, "spec", "runStrategy")
    running = map_at(manifest, "spec").get("running")
    if strategy or not isinstance(running, bool):
        return strategy
    return RunStrategy.ALWAYS if running else RunStrategy.HALTED


def _parse_disks(manifest: Manifest) -> dict[str, str]:
    volumes = maps_at(manifest, "spec", "template", "spec", "volumes")
    disks = {text_at(item, "name"): text_at(item, "dataVolume", "name") for item in volumes}
    return {name: disk for name, disk in disks.items() if name and disk}


def _is_on_pod_network(spec: Mapping[str, object]) -> bool:
    """Return whether a guest has an interface on the network of its pod.

    A Multus network marked as default takes the place of the pod network. KubeVirt adds the pod
    network where the spec names no network, unless `autoattachPodInterface` is false.
    """
    networks = maps_at(spec, "networks")
    if not networks:
        return map_at(spec, "domain", "devices").get("autoattachPodInterface") is not False
    return any("pod" in each or is_set_at(map_at(each, "multus"), "default") for each in networks)


def _number_at(manifest: Mapping[str, object], name: str) -> int:
    value = manifest.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
