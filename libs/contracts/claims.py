"""Views of PersistentVolumeClaim and StorageClass, and of pods that use claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Self

from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import (
    is_set_at,
    map_at,
    maps_at,
    quantity_at,
    text_at,
    text_map_at,
    texts_at,
)

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
"""Binding mode: provision the volume only when a pod that uses the claim is scheduled."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node from which its volume must be reachable.

The scheduler sets it for a class with the binding mode WaitForFirstConsumer. It respects a value
that is already there, and so does the provisioner.
"""

_REQUEST: Final = ("spec", "resources", "requests", "storage")
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


@dataclass(frozen=True, slots=True)
class ClaimCondition:
    """One condition of a claim whose status is True.

    Attributes:
        type: Such as `Resizing`, `FileSystemResizePending` or `ControllerResizeError`.
        message: Message of the condition, as its writer set it.
    """

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class ClaimView:
    """The parts of a PersistentVolumeClaim that operators use.

    Attributes:
        resource_version: Resource version of the object that was parsed.
        deleting: Whether it is being deleted; pods that use it may delay that for long.
        phase: `Pending`, `Bound` or `Lost`; empty before the first status.
        volume_name: PersistentVolume that it is bound to; empty before binding.
        storage_class: Name of the class; None while there is none, empty for "no class".
        volume_mode: `Filesystem` or `Block`.
        requested: Requested bytes; None if they cannot be parsed.
        requested_text: The requested size as written in the spec.
        capacity: Actual bytes, from `status.capacity`; None before binding. An expansion shows only
            when it is complete, including the expansion of the file system if there is one.
        resize_status: State of an expansion, from `status.allocatedResourceStatuses`.
        data_source: Kind and name of what it was filled from; empty texts for none.
        data_source_ref: API group, kind and name of the source, including custom populators.
        selector: Label selector for its volume; None for none.
        attributes_class: Requested VolumeAttributesClass; empty for none.
        current_attributes_class: VolumeAttributesClass that the volume has; empty for none.
        modify_status: `Pending`, `InProgress` or `Infeasible` while the class changes, else empty.
    """

    key: Key
    uid: str
    resource_version: str
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    owner_references: tuple[Mapping[str, Any], ...]
    phase: str
    volume_name: str
    storage_class: str | None
    access_modes: tuple[str, ...]
    volume_mode: str
    requested: Fraction | None
    requested_text: str
    capacity: Fraction | None
    resize_status: str
    conditions: tuple[ClaimCondition, ...]
    data_source: tuple[str, str]
    data_source_ref: tuple[str, str, str]
    selector: Mapping[str, Any] | None
    attributes_class: str
    current_attributes_class: str
    modify_status: str

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a claim; invalid fields count as absent."""
        metadata = map_at(manifest, "metadata")
        source = map_at(manifest, "spec", "dataSource")
        reference = map_at(manifest, "spec", "dataSourceRef") or source
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            resource_version=text_at(metadata, "resourceVersion"),
            deleting=is_deleting(manifest),
            labels=text_map_at(metadata, "labels"),
            annotations=text_map_at(metadata, "annotations"),
            finalizers=texts_at(metadata, "finalizers"),
            owner_references=tuple(maps_at(metadata, "ownerReferences")),
            phase=text_at(manifest, "status", "phase"),
            volume_name=text_at(manifest, "spec", "volumeName"),
            storage_class=_parse_class(manifest),
            access_modes=texts_at(manifest, "spec", "accessModes"),
            volume_mode=text_at(manifest, "spec", "volumeMode") or "Filesystem",
            requested=quantity_at(manifest, *_REQUEST),
            requested_text=text_at(manifest, *_REQUEST),
            capacity=quantity_at(manifest, "status", "capacity", "storage"),
            resize_status=text_at(manifest, "status", "allocatedResourceStatuses", "storage"),
            conditions=_parse_conditions(manifest),
            data_source=(text_at(source, "kind"), text_at(source, "name")),
            data_source_ref=(
                text_at(reference, "apiGroup"),
                text_at(reference, "kind"),
                text_at(reference, "name"),
            ),
            selector=map_at(manifest, "spec", "selector") or None,
            attributes_class=text_at(manifest, "spec", "volumeAttributesClassName"),
            current_attributes_class=text_at(
                manifest, "status", "currentVolumeAttributesClassName"
            ),
            modify_status=text_at(manifest, "status", "modifyVolumeStatus", "status"),
        )

    @property
    def bound(self) -> bool:
        """Whether it is bound to a volume that can be used."""
        return self.phase == "Bound"

    @property
    def has_consumer(self) -> bool:
        """Whether the scheduler has chosen a node for the first pod that uses the claim."""
        return bool(self.annotations.get(SELECTED_NODE))

    def condition(self, *types: str) -> ClaimCondition | None:
        """Return the first condition that has one of the types and holds, or None."""
        return next((held for held in self.conditions if held.type in types), None)


@dataclass(frozen=True, slots=True)
class StorageClassView:
    """The parts of a StorageClass that operators use.

    Attributes:
        expandable: Whether claims of the class may be expanded.
        waits_for_consumer: Whether a volume is provisioned only once a pod uses the claim.
    """

    name: str
    expandable: bool
    waits_for_consumer: bool

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a class; invalid fields count as absent."""
        return cls(
            name=text_at(manifest, "metadata", "name"),
            expandable=is_set_at(manifest, "allowVolumeExpansion"),
            waits_for_consumer=text_at(manifest, "volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER,
        )


@dataclass(frozen=True, slots=True)
class ClaimUser:
    """A pod as a user of claims.

    Attributes:
        finished: Whether it has ended; the pod still protects its claims until it is deleted.
    """

    name: str
    finished: bool

    def __str__(self) -> str:
        """Render for messages: `job-x (finished)`."""
        return f"{self.name} (finished)" if self.finished else self.name

    @classmethod
    def parse(cls, pod: Manifest) -> Self:
        """Parse a pod, full or reduced by `shrink_pod`."""
        phase = text_at(pod, "status", "phase")
        return cls(text_at(pod, "metadata", "name"), phase in ("Succeeded", "Failed"))


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the claims that a pod mounts, each once."""
    names = (
        text_at(volume, "persistentVolumeClaim", "claimName")
        for volume in maps_at(pod, "spec", "volumes")
    )
    return sorted({name for name in names if name})


def holds_claims(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod keeps its claims from being deleted.

    Mirrors the finalizer `kubernetes.io/pvc-protection`, which counts every pod that has a node,
    including one that has ended: the kubelet may still have to unmount the volume. A pod without a
    node does not count, because the kubelet does not start a pod whose claim is being deleted.
    """
    return bool(text_at(pod, "spec", "nodeName"))


def shrink_pod(pod: Manifest) -> Manifest:
    """Reduce a pod to the fields that tell which claims it uses: some 300 bytes of 10,000."""
    metadata = pod["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    return {
        "apiVersion": pod.get("apiVersion", "v1"),
        "kind": pod.get("kind", "Pod"),
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {
            "nodeName": text_at(pod, "spec", "nodeName"),
            "volumes": [{"persistentVolumeClaim": {"claimName": name}} for name in claims_of(pod)],
        },
        "status": {"phase": text_at(pod, "status", "phase")},
    }


def _parse_class(manifest: Manifest) -> str | None:
    name = map_at(manifest, "spec").get("storageClassName")
    if isinstance(name, str):
        return name
    return text_at(manifest, "metadata", "annotations", _CLASS_ANNOTATION) or None


def _parse_conditions(manifest: Manifest) -> tuple[ClaimCondition, ...]:
    return tuple(
        ClaimCondition(text_at(condition, "type"), text_at(condition, "message"))
        for condition in maps_at(manifest, "status", "conditions")
        if condition.get("status") == "True"
    )
