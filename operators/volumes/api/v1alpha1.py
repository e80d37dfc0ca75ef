"""DemoVolume v1alpha1: the kind, its conditions and reasons.

Manifests with only `name` and `size` keep their meaning from earlier versions. `spec.name` is the
name of the claim and is copied to `status.name`. Without it, the claim has the name of the
DemoVolume.
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    HUGE,
    Conditions,
    Count,
    CustomResource,
    DnsSubdomain,
    Immutable,
    KubernetesModel,
    LabelSelector,
    ListAtomic,
    ListSet,
    ObjectReference,
    ObjectStatus,
    PrinterColumn,
    Quantity,
    Rule,
    kind_of,
)
from libs.common.kinds import Kind
from operators.volumes.api.parts import (
    ClaimMetadata,
    ClassName,
    DataSourceRef,
    Size,
    VolumeSource,
    parse_size,
)

GROUP: Final = "storage.slipway.dev"
"""API group of the operator."""
USERS_SHOWN: Final = 20
"""Maximum number of pods that a status lists; a claim on a shared file system can have
thousands."""

# Both forms of a size as a quantity, for CEL.
_SIZE: Final = "quantity(type({0}) == int ? string({0}) + 'Gi' : string({0}))"
_NEW, _OLD = _SIZE.format("self.spec.size"), _SIZE.format("oldSelf.spec.size")
_CLAIM: Final = "(has({0}.spec.name) ? {0}.spec.name : {0}.metadata.name)"


class AccessMode(StrEnum):
    """AccessMode defines who can mount a volume at the same time."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_ONLY_MANY = "ReadOnlyMany"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class VolumeMode(StrEnum):
    """VolumeMode is the form in which pods see the volume."""

    FILESYSTEM = "Filesystem"
    BLOCK = "Block"


class ReclaimPolicy(StrEnum):
    """ReclaimPolicy defines what happens to the data when the DemoVolume is deleted."""

    DELETE = "Delete"
    RETAIN = "Retain"
    SNAPSHOT = "Snapshot"


class LossPolicy(StrEnum):
    """LossPolicy defines what happens when the claim no longer exists."""

    RECREATE = "Recreate"
    WAIT = "Wait"


class AdoptPolicy(StrEnum):
    """AdoptPolicy defines whether the operator can adopt an existing claim."""

    NEVER = "Never"
    IF_MATCHING = "IfMatching"


class ConditionType(StrEnum):
    """Conditions of a DemoVolume."""

    READY = "Ready"
    """Ready is True when a pod can use the volume at the size that spec.size asks for.

    Ready is True with reason WaitingForFirstConsumer if the StorageClass waits for the first
    consumer, and with reason FileSystemPending if the file system grows when the next pod mounts
    the volume. In both cases only a pod can continue the work, and a pod that waited for Ready
    would wait indefinitely."""
    BOUND = "Bound"
    """Bound is True when the claim is bound to a volume."""
    RESIZED = "Resized"
    """Resized is True when the capacity, file system included, covers spec.size."""
    DRIFTED = "Drifted"
    """Drifted is True when the claim differs from the spec in a way that cannot be corrected."""
    MODIFIED = "Modified"
    """Modified is True if the volume has the attributes of spec.volumeAttributesClassName; shown
    only if that field is set."""
    CONFLICT = "Conflict"
    """Conflict is True when the claim with that name belongs to somebody else; it is not
    changed."""
    SNAPSHOTS_AVAILABLE = "SnapshotsAvailable"
    """SnapshotsAvailable is True when the cluster serves VolumeSnapshot. It is present if the spec
    needs snapshots."""
    TERMINATING = "Terminating"
    """Terminating is True while the DemoVolume is being deleted; the reason says what the deletion
    waits for."""


class Reason(StrEnum):
    """Reasons of the conditions and events of a DemoVolume."""

    BOUND = "Bound"
    """Bound means that the claim is bound to a volume."""
    WAITING_FOR_FIRST_CONSUMER = "WaitingForFirstConsumer"
    """WaitingForFirstConsumer means that the volume is created when a pod uses it. This is not an
    error."""
    PROVISIONING = "Provisioning"
    """Provisioning means that the claim waits for its volume."""
    LOST = "Lost"
    """Lost means that the volume of the claim no longer exists; restore the PersistentVolume."""
    CREATING = "Creating"
    """Creating means that the claim does not exist yet."""
    CREATED = "Created"
    """Created means that the claim was created."""
    CREATE_FAILED = "CreateFailed"
    """CreateFailed means that the API server refused the claim, for example because of a quota."""
    CLAIM_TERMINATING = "ClaimTerminating"
    """ClaimTerminating means that somebody deleted the claim; it is recreated when the deletion has
    finished."""
    REPLACED = "Replaced"
    """Replaced means that a claim was lost and recreated with an empty volume."""
    CLAIM_LOST = "ClaimLost"
    """ClaimLost means that the claim no longer exists although its data must be kept; restore it
    with the same name, or set spec.onLoss to Recreate."""
    SIZE_REACHED = "SizeReached"
    """SizeReached means that the capacity covers spec.size."""
    NOT_BOUND = "NotBound"
    """NotBound means that the claim is not bound, so its capacity is unknown."""
    RESIZING = "Resizing"
    """Resizing means that the volume is growing."""
    FILE_SYSTEM_PENDING = "FileSystemPending"
    """FileSystemPending means that the file system grows when a pod mounts the volume."""
    INFEASIBLE = "Infeasible"
    """Infeasible means that the storage cannot grow the volume to this size; reduce spec.size."""
    RESIZE_FAILED = "ResizeFailed"
    """ResizeFailed means that growing the volume failed; it is tried again."""
    CLASS_FORBIDS = "ClassForbids"
    """ClassForbids means that the StorageClass does not allow volume expansion."""
    ATTRIBUTES_APPLIED = "AttributesApplied"
    """AttributesApplied means that the volume has the attributes of its class."""
    MODIFYING = "Modifying"
    """Modifying means that the driver is changing the attributes of the volume."""
    MODIFY_INFEASIBLE = "ModifyInfeasible"
    """ModifyInfeasible means that the driver cannot give the volume the attributes of the class;
    set spec.volumeAttributesClassName to another class."""
    MODIFY_FAILED = "ModifyFailed"
    """ModifyFailed means that the API server refused the class of attributes."""
    IN_SYNC = "InSync"
    """InSync means that the claim matches the spec."""
    LARGER_THAN_SPEC = "LargerThanSpec"
    """LargerThanSpec means that the claim is larger than spec.size; claims never shrink."""
    CORRECTION_FAILED = "CorrectionFailed"
    """CorrectionFailed means that the API server refused an update of the claim."""
    CORRECTED = "Corrected"
    """Corrected means that the claim was updated to match the spec."""
    NO_CONFLICT = "NoConflict"
    """NoConflict means that the claim belongs to this DemoVolume or does not exist."""
    FOREIGN_CLAIM = "ForeignClaim"
    """ForeignClaim means that the claim has another owner, alone or in addition."""
    UNOWNED_CLAIM = "UnownedClaim"
    """UnownedClaim means that the claim existed before; set spec.adopt to adopt it."""
    MISMATCH = "Mismatch"
    """Mismatch means that the claim may be adopted but does not match the spec."""
    ADOPTED = "Adopted"
    """Adopted means that an existing claim was adopted."""
    SOURCE_MISSING = "SourceMissing"
    """SourceMissing means that the object that spec.source names does not exist."""
    SOURCE_NOT_READY = "SourceNotReady"
    """SourceNotReady means that the object that spec.source names is not ready to be copied."""
    SOURCE_MISMATCH = "SourceMismatch"
    """SourceMismatch means that the data of the object that spec.source names does not fit into
    this volume."""
    SNAPSHOT_API_FOUND = "SnapshotAPIFound"
    """SnapshotAPIFound means that the cluster serves VolumeSnapshot."""
    SNAPSHOT_API_MISSING = "SnapshotAPIMissing"
    """SnapshotAPIMissing means that the CRDs of VolumeSnapshot are not installed."""
    TERMINATING = "Terminating"
    """Terminating means that the DemoVolume is being deleted."""
    IN_USE = "InUse"
    """InUse means that pods use the claim; it is deleted when they are."""
    SNAPSHOTTING = "Snapshotting"
    """Snapshotting means that the last snapshot is being taken."""
    SNAPSHOT_OUTDATED = "SnapshotOutdated"
    """SnapshotOutdated means that the volume was used after its last snapshot; another snapshot is
    taken."""
    SNAPSHOT_FAILED = "SnapshotFailed"
    """SnapshotFailed means that the last snapshot failed; it is tried again and the data is
    kept."""
    SNAPSHOT_CONFLICT = "SnapshotConflict"
    """SnapshotConflict means that a snapshot that the operator does not own has the name of the
    last snapshot."""
    DELETING_CLAIM = "DeletingClaim"
    """DeletingClaim means that the claim is being deleted."""
    RELEASED = "Released"
    """Released means that the claim and its data were kept without an owner."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""


class DemoVolumeSpec(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.source) || !has(self.dataSourceRef)",
            "source and dataSourceRef cannot both be set",
            field_path=".dataSourceRef",
        ),
        Rule(
            "has(self.volumeAttributesClassName) || !has(oldSelf.volumeAttributesClassName)",
            "volumeAttributesClassName can be changed but not removed",
            field_path=".volumeAttributesClassName",
        ),
    ),
):
    """DemoVolumeSpec is the desired state of a DemoVolume."""

    name: DnsSubdomain | None = None
    """name is the name of the PersistentVolumeClaim. Defaults to the name of the DemoVolume.
    Immutable."""
    size: Size
    """size is the size of the volume; an integer counts gibibytes, text is a quantity."""
    storage_class_name: Annotated[ClassName | None, Immutable()] = None
    """storageClassName is the StorageClass of the volume. Empty means no class. Defaults to the
    default StorageClass of the cluster. Immutable."""
    access_modes: Annotated[
        list[AccessMode],
        ListSet(),
        Field(min_length=1, max_length=4),
        Immutable(),
        Rule(
            "self.size() == 1 || !self.exists(mode, mode == 'ReadWriteOncePod')",
            "ReadWriteOncePod cannot be combined with other accessModes",
        ),
    ] = [AccessMode.READ_WRITE_ONCE]
    """accessModes define who can mount the volume at the same time. Immutable."""
    volume_mode: Annotated[VolumeMode, Immutable()] = VolumeMode.FILESYSTEM
    """volumeMode is Filesystem, or Block for the bare device. Immutable."""
    source: Annotated[VolumeSource | None, Immutable()] = None
    """source is the origin of the data in the new volume. Defaults to an empty volume.
    Immutable."""
    data_source_ref: Annotated[DataSourceRef | None, Immutable()] = None
    """dataSourceRef names an object from which a volume populator fills the volume. Cannot be
    combined with source. Immutable."""
    volume_name: Annotated[DnsSubdomain | None, Immutable()] = None
    """volumeName is the name of the PersistentVolume to bind. Defaults to any volume that fits.
    Immutable."""
    selector: Annotated[LabelSelector | None, Immutable()] = None
    """selector selects the PersistentVolumes that may be bound. With a selector no volume is
    provisioned dynamically. Immutable."""
    volume_attributes_class_name: DnsSubdomain | None = None
    """volumeAttributesClassName is the VolumeAttributesClass of the volume, which determines such
    things as its IOPS. It can be changed but not removed."""
    claim_metadata: ClaimMetadata = ClaimMetadata()
    """claimMetadata holds labels and annotations for the claim, such as labels for backup or cost
    tools. An entry that is removed here is removed from the claim."""
    reclaim_policy: ReclaimPolicy | None = None
    """reclaimPolicy is what happens to the data when the DemoVolume is deleted. Defaults to Delete,
    or to Retain for a claim that was adopted."""
    on_loss: LossPolicy | None = None
    """onLoss defines what happens when another client deletes the claim: Recreate an empty one, or
    Wait until it is restored. Defaults to Recreate under reclaimPolicy Delete, and to Wait
    otherwise."""
    snapshot_class_name: DnsSubdomain | None = None
    """snapshotClassName is the class of the snapshot of reclaimPolicy Snapshot."""
    adopt: AdoptPolicy = AdoptPolicy.NEVER
    """adopt is IfMatching to adopt an existing claim that has no owner and matches the spec, or
    Never."""

    @property
    def size_bytes(self) -> Fraction:
        """The size in bytes."""
        return parse_size(self.size)


class DemoVolumeStatus(ObjectStatus):
    """DemoVolumeStatus is the observed state of a DemoVolume."""

    conditions: Conditions = []
    """conditions report whether the volume can be used, and why not."""
    name: DnsSubdomain | None = None
    """name is the name of the claim, copied from spec.name."""
    pvc_ref: ObjectReference | None = None
    """pvcRef names the claim of this DemoVolume, or its last claim if that was lost."""
    reclaim_policy: ReclaimPolicy | None = None
    """reclaimPolicy is the policy in effect."""
    volume_name: DnsSubdomain | None = None
    """volumeName is the PersistentVolume that the claim is bound to."""
    storage_class_name: DnsSubdomain | None = None
    """storageClassName is the StorageClass of the claim."""
    volume_attributes_class_name: DnsSubdomain | None = None
    """volumeAttributesClassName is the VolumeAttributesClass that the volume has."""
    requested: Quantity | None = None
    """requested is the size that the claim asks for."""
    capacity: Quantity | None = None
    """capacity is the actual size of the volume, including its file system."""
    used_by_count: Count = 0
    """usedByCount is the number of pods that use the claim."""
    used_by: Annotated[list[DnsSubdomain], ListAtomic(), Field(max_length=USERS_SHOWN)] = []
    """usedBy lists the first 20 pods that use the claim."""


class DemoVolume(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="demovolumes",
    short_names=("dvol",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Claim", "string", ".status.name", "Name of the claim."),
        PrinterColumn("Size", "string", ".status.requested", "Size that the claim asks for."),
        PrinterColumn("Capacity", "string", ".status.capacity", "Actual size of the volume."),
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
            "Reclaim",
            "string",
            ".spec.reclaimPolicy",
            "What happens to the data when the object is deleted.",
            1,
        ),
        PrinterColumn(
            "Class", "string", ".status.storageClassName", "Storage class of the claim.", 1
        ),
        PrinterColumn("Volume", "string", ".status.volumeName", "Volume behind the claim.", 1),
        PrinterColumn("Used-By", "string", ".status.usedBy[*]", "Pods that use the claim.", 1),
        AGE,
    ),
    rules=(
        Rule(
            f"{_CLAIM.format('self')} == {_CLAIM.format('oldSelf')}",
            "spec.name cannot change: a claim cannot be renamed",
            field_path=".spec.name",
        ),
        # The size is compared with the capacity only when it is reduced: drivers round up, so a
        # volume of 15675Mi may show 16Gi, and the write of that status must not be refused.
        Rule(
            f"{HUGE.format('self.spec.size')} || {HUGE.format('oldSelf.spec.size')} || "
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
    """DemoVolume manages a PersistentVolumeClaim."""

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
        """Whether the spec uses a feature that needs snapshots."""
        source = self.spec.source
        from_snapshot = source is not None and source.snapshot is not None
        return from_snapshot or self.spec.reclaim_policy is ReclaimPolicy.SNAPSHOT


DEMO_VOLUME: Final[Kind] = kind_of(DemoVolume)
"""The kind as a value, for the client and the generator."""
