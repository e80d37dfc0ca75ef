"""DemoVolume v1alpha1: the kind, its conditions and reasons.

Manifests with nothing but `name` and `size` mean what they always meant. The claim is named by
`spec.name`, which is also what `status.name` repeats; without it, the claim is named like the
DemoVolume itself.
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from math import ceil
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from libs.common.crd import (
    AGE,
    Conditions,
    Count,
    CustomResource,
    DnsSubdomain,
    Immutable,
    IntOrQuantity,
    KubernetesModel,
    ListAtomic,
    ListSet,
    ObjectReference,
    ObservedGeneration,
    PrinterColumn,
    Quantity,
    Rule,
    kind_of,
)
from libs.common.kinds import Kind
from libs.common.quantity import MAX_BINARY, parse_quantity

GROUP: Final = "storage.slipway.dev"
"""API group of the operator."""
USERS_SHOWN: Final = 20
"""Most pods that a status names; a claim on a shared file system can have thousands."""
MIN_SIZE: Final = 2**20
"""Smallest size in bytes; less is a number whose unit was forgotten."""
MAX_SIZE: Final = MAX_BINARY
"""Largest size in bytes, which is the largest that Kubernetes can say."""

_GIBIBYTE: Final = 2**30
_BAD_SIZE: Final = "size must be 1Mi to 8Ei; an integer counts gibibytes, text needs a unit (10Gi)"
# Both forms of a size as a quantity, for CEL.
_SIZE: Final = "quantity(type({0}) == int ? string({0}) + 'Gi' : string({0}))"
_NEW, _OLD = _SIZE.format("self.spec.size"), _SIZE.format("oldSelf.spec.size")
_CLAIM: Final = "(has({0}.spec.name) ? {0}.spec.name : {0}.metadata.name)"


class AccessMode(StrEnum):
    """AccessMode says who may mount a volume at the same time."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_ONLY_MANY = "ReadOnlyMany"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class VolumeMode(StrEnum):
    """VolumeMode says what pods get to see."""

    FILESYSTEM = "Filesystem"
    BLOCK = "Block"


class ReclaimPolicy(StrEnum):
    """ReclaimPolicy says what becomes of the data when the DemoVolume is deleted."""

    DELETE = "Delete"
    RETAIN = "Retain"
    SNAPSHOT = "Snapshot"


class AdoptPolicy(StrEnum):
    """AdoptPolicy says whether a claim that exists already may be taken over."""

    NEVER = "Never"
    IF_MATCHING = "IfMatching"


class ConditionType(StrEnum):
    """Conditions of a DemoVolume."""

    READY = "Ready"
    """Ready is True when a pod can use the volume at the size that spec.size asks for.

    A class that waits for its first consumer makes Ready True with reason WaitingForFirstConsumer,
    and a volume that grew, and whose file system grows when the next pod mounts it, with reason
    FileSystemPending: the operator has done its part, and a pod that waited for Ready before it
    starts would wait for ever."""
    BOUND = "Bound"
    """Bound is True when the claim is bound to a volume."""
    RESIZED = "Resized"
    """Resized is True when the capacity, file system included, covers spec.size."""
    DRIFTED = "Drifted"
    """Drifted is True when the claim differs from the spec in a way that cannot be corrected."""
    CONFLICT = "Conflict"
    """Conflict is True when the claim of that name belongs to somebody else; it is left alone."""
    SNAPSHOTS_AVAILABLE = "SnapshotsAvailable"
    """SnapshotsAvailable tells whether VolumeSnapshot is served; shown where it is needed."""
    TERMINATING = "Terminating"
    """Terminating is True while the DemoVolume waits to be deleted; the reason says for what."""


class Reason(StrEnum):
    """Reasons of the conditions and events of a DemoVolume."""

    BOUND = "Bound"
    """Bound means that the volume is there."""
    WAITING_FOR_FIRST_CONSUMER = "WaitingForFirstConsumer"
    """WaitingForFirstConsumer means that the volume is made when a pod uses it; no error."""
    PROVISIONING = "Provisioning"
    """Provisioning means that the claim waits for its volume."""
    LOST = "Lost"
    """Lost means that the volume behind the claim is gone; delete the claim to get an empty one."""
    CREATING = "Creating"
    """Creating means that the claim is not there yet."""
    CREATED = "Created"
    """Created means that the claim was created."""
    CREATE_FAILED = "CreateFailed"
    """CreateFailed means that the API server refused the claim, such as for a quota."""
    CLAIM_TERMINATING = "ClaimTerminating"
    """ClaimTerminating means that somebody deleted the claim; a new one follows once it is gone."""
    REPLACED = "Replaced"
    """Replaced means that a claim was lost and a new, empty one took its name."""
    SIZE_REACHED = "SizeReached"
    """SizeReached means that the capacity covers spec.size."""
    NOT_BOUND = "NotBound"
    """NotBound means that there is no capacity to speak of yet."""
    RESIZING = "Resizing"
    """Resizing means that the volume is growing."""
    FILE_SYSTEM_PENDING = "FileSystemPending"
    """FileSystemPending means that the file system grows when a pod mounts the volume."""
    INFEASIBLE = "Infeasible"
    """Infeasible means that the storage cannot grow the volume so far; reduce spec.size again."""
    RESIZE_FAILED = "ResizeFailed"
    """ResizeFailed means that growing failed and is tried again."""
    CLASS_FORBIDS = "ClassForbids"
    """ClassForbids means that the storage class does not let volumes grow."""
    IN_SYNC = "InSync"
    """InSync means that the claim is as the spec says."""
    LARGER_THAN_SPEC = "LargerThanSpec"
    """LargerThanSpec means that the claim is larger than spec.size; claims never shrink."""
    CORRECTION_FAILED = "CorrectionFailed"
    """CorrectionFailed means that the API server refused to bring the claim back in line."""
    CORRECTED = "Corrected"
    """Corrected means that a claim was brought back in line with the spec."""
    NO_CONFLICT = "NoConflict"
    """NoConflict means that the name of the claim is ours."""
    FOREIGN_CLAIM = "ForeignClaim"
    """ForeignClaim means that the claim has another owner."""
    UNOWNED_CLAIM = "UnownedClaim"
    """UnownedClaim means that the claim was there before; spec.adopt can take it over."""
    MISMATCH = "Mismatch"
    """Mismatch means that the claim may be adopted but does not match the spec."""
    ADOPTED = "Adopted"
    """Adopted means that a claim which was there before was taken over."""
    SOURCE_MISSING = "SourceMissing"
    """SourceMissing means that what spec.source names does not exist."""
    SOURCE_NOT_READY = "SourceNotReady"
    """SourceNotReady means that what spec.source names has nothing to copy yet."""
    SOURCE_MISMATCH = "SourceMismatch"
    """SourceMismatch means that what spec.source names does not fit into this volume."""
    SNAPSHOT_API_FOUND = "SnapshotAPIFound"
    """SnapshotAPIFound means that the cluster serves VolumeSnapshot."""
    SNAPSHOT_API_MISSING = "SnapshotAPIMissing"
    """SnapshotAPIMissing means that the CRDs of VolumeSnapshot are not installed."""
    TERMINATING = "Terminating"
    """Terminating means that the DemoVolume is being deleted."""
    IN_USE = "InUse"
    """InUse means that pods hold the claim; it goes when they are deleted."""
    SNAPSHOTTING = "Snapshotting"
    """Snapshotting means that the last snapshot is being taken."""
    SNAPSHOT_OUTDATED = "SnapshotOutdated"
    """SnapshotOutdated means that the volume was used after its last snapshot; another is taken."""
    SNAPSHOT_FAILED = "SnapshotFailed"
    """SnapshotFailed means that the last snapshot failed and is tried again; the data is kept."""
    SNAPSHOT_CONFLICT = "SnapshotConflict"
    """SnapshotConflict means that the name of the last snapshot is taken by somebody else."""
    DELETING_CLAIM = "DeletingClaim"
    """DeletingClaim means that the claim is being deleted."""
    RELEASED = "Released"
    """Released means that the claim and its data were kept and belong to nobody now."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""


def parse_size(size: int | str) -> Fraction:
    """Parse a size into whole bytes, rounded up; an integer counts gibibytes.

    The API server rounds a claim of `3.3333Gi` to thousandths of a byte; compared with finer ones,
    it would ask for more than its spec for ever.

    Raises:
        ValueError: The text is not a quantity.
    """
    if isinstance(size, int):
        return Fraction(size * _GIBIBYTE)
    return Fraction(ceil(parse_quantity(size)))


def _check_size(size: int | str) -> int | str:
    if not MIN_SIZE <= parse_size(size) <= MAX_SIZE:
        raise ValueError(_BAD_SIZE)
    return size


Size = Annotated[
    IntOrQuantity,
    AfterValidator(_check_size),
    Rule(
        "type(self) == int ? self >= 1 && self <= 8589934591 : "
        "!isQuantity(self) || quantity(self).compareTo(quantity('1Mi')) >= 0 && "
        "quantity(self).compareTo(quantity('8Ei')) <= 0",
        _BAD_SIZE,
    ),
]
"""A size: an integer counts gibibytes, text is a quantity."""


ClassName = Annotated[
    str,
    Field(
        max_length=253,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
    ),
]
"""The name of a storage class; empty for a volume that a person made by hand."""


class VolumeSource(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.snapshot) != has(self.volume)",
            "source needs exactly one of snapshot and volume",
        ),
    ),
):
    """VolumeSource is what a new volume is filled from."""

    snapshot: DnsSubdomain | None = None
    """snapshot is the name of a VolumeSnapshot in the same namespace."""
    volume: DnsSubdomain | None = None
    """volume is the name of a DemoVolume in the same namespace, to be cloned."""


class DemoVolumeSpec(KubernetesModel):
    """DemoVolumeSpec is what a user asks for."""

    name: DnsSubdomain | None = None
    """name is the name of the PersistentVolumeClaim (default: the name of the DemoVolume)."""
    size: Size
    """size is the size of the volume; an integer counts gibibytes, text is a quantity."""
    storage_class_name: Annotated[ClassName | None, Immutable()] = None
    """storageClassName is the class of the volume (default: that of the cluster; empty: none)."""
    access_modes: Annotated[
        list[AccessMode],
        ListSet(),
        Field(min_length=1, max_length=4),
        Immutable(),
        Rule(
            "self.size() == 1 || !self.exists(mode, mode == 'ReadWriteOncePod')",
            "accessModes may hold ReadWriteOncePod only alone",
        ),
    ] = [AccessMode.READ_WRITE_ONCE]
    """accessModes say who may mount the volume at the same time."""
    volume_mode: Annotated[VolumeMode, Immutable()] = VolumeMode.FILESYSTEM
    """volumeMode is Filesystem, or Block for the bare device."""
    source: Annotated[VolumeSource | None, Immutable()] = None
    """source is what the new volume is filled from (default: it is empty)."""
    reclaim_policy: ReclaimPolicy = ReclaimPolicy.DELETE
    """reclaimPolicy is what becomes of the data when the DemoVolume is deleted."""
    snapshot_class_name: DnsSubdomain | None = None
    """snapshotClassName is the class of the snapshot of reclaimPolicy Snapshot."""
    adopt: AdoptPolicy = AdoptPolicy.NEVER
    """adopt says whether a claim without owner that matches the spec may be taken over."""

    @property
    def size_bytes(self) -> Fraction:
        """The size in bytes."""
        return parse_size(self.size)


class DemoVolumeStatus(KubernetesModel):
    """DemoVolumeStatus is what the operator observed."""

    conditions: Conditions = []
    """conditions tell whether the volume can be used, and what keeps it from that."""
    observed_generation: ObservedGeneration = 0
    """observedGeneration is the generation of the spec that this status is about."""
    name: DnsSubdomain | None = None
    """name is the name of the claim, copied from spec.name."""
    pvc_ref: ObjectReference | None = None
    """pvcRef names the claim that belongs to this DemoVolume."""
    volume_name: DnsSubdomain | None = None
    """volumeName is the PersistentVolume that the claim is bound to."""
    storage_class_name: DnsSubdomain | None = None
    """storageClassName is the class that the claim got."""
    requested: Quantity | None = None
    """requested is the size that the claim asks for."""
    capacity: Quantity | None = None
    """capacity is the size that there is, file system included."""
    used_by_count: Count = 0
    """usedByCount is the number of pods that hold the claim."""
    used_by: Annotated[list[DnsSubdomain], ListAtomic(), Field(max_length=USERS_SHOWN)] = []
    """usedBy names pods that hold the claim, the first 20 of them."""


class DemoVolume(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="demovolumes",
    short_names=("dvol",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Claim", "string", ".status.name", "Name of the claim."),
        PrinterColumn("Size", "string", ".spec.size", "Size asked for; a number counts GiB."),
        PrinterColumn("Capacity", "string", ".status.capacity", "Size that there is."),
        PrinterColumn(
            "Ready",
            "string",
            '.status.conditions[?(@.type=="Ready")].status',
            "Whether a pod can use the volume at that size.",
        ),
        PrinterColumn(
            "Reason",
            "string",
            '.status.conditions[?(@.type=="Ready")].reason',
            "Why it is ready, or why not.",
        ),
        PrinterColumn(
            "Reclaim", "string", ".spec.reclaimPolicy", "What becomes of the data in the end.", 1
        ),
        PrinterColumn(
            "Class", "string", ".status.storageClassName", "Storage class of the claim.", 1
        ),
        PrinterColumn("Volume", "string", ".status.volumeName", "Volume behind the claim.", 1),
        PrinterColumn("Used-By", "string", ".status.usedBy[*]", "Pods that hold the claim.", 1),
        AGE,
    ),
    rules=(
        Rule(
            f"{_CLAIM.format('self')} == {_CLAIM.format('oldSelf')}",
            "spec.name cannot change: a claim cannot be renamed",
            field_path=".spec.name",
        ),
        # The size is compared with the capacity only when it is reduced: drivers round up, so a
        # volume of 15675Mi may show 16Gi, and the write of that very status must not be refused.
        Rule(
            f"{_NEW}.compareTo({_OLD}) >= 0 || !has(self.status) || !has(self.status.capacity) || "
            f"{_NEW}.compareTo(quantity(string(self.status.capacity))) >= 0",
            "spec.size cannot be less than status.capacity: a volume cannot shrink",
            field_path=".spec.size",
        ),
        Rule(
            "!has(self.spec.source) || !has(self.spec.source.volume) || "
            "self.spec.source.volume != self.metadata.name",
            "spec.source.volume cannot be the DemoVolume itself",
            field_path=".spec.source.volume",
        ),
    ),
    conditions=ConditionType,
    reasons=Reason,
):
    """DemoVolume keeps a PersistentVolumeClaim of its name and size."""

    spec: DemoVolumeSpec
    """spec is what a user asks for."""
    status: DemoVolumeStatus | None = None
    """status is what the operator observed."""

    @property
    def claim_name(self) -> str:
        """Name of the claim: `spec.name`, else the name of the DemoVolume."""
        return self.spec.name or self.metadata.name

    @property
    def needs_snapshots(self) -> bool:
        """Whether the spec asks for something that only snapshots can do."""
        source = self.spec.source
        from_snapshot = source is not None and source.snapshot is not None
        return from_snapshot or self.spec.reclaim_policy is ReclaimPolicy.SNAPSHOT


DEMO_VOLUME: Final[Kind] = kind_of(DemoVolume)
"""The kind as data."""
