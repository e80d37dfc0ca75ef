"""Operation v1alpha1: a task on an Instance that runs once, like a Job.

The spec is immutable except for `cancel`. Before a step acts, the operator writes everything that
it needs to repeat the step safely into `status.facts`, so that it can resume after a crash at any
point. The last three phases are final: the API server refuses to change them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    Conditions,
    Count,
    CustomResource,
    DnsSubdomain,
    Immutable,
    KubernetesModel,
    ListMap,
    LongText,
    ObjectStatus,
    PrinterColumn,
    Rule,
    Timestamp,
    Uid,
    Waive,
    kind_of,
)
from libs.common.kinds import Kind
from libs.contracts.compute import COMPUTE_GROUP
from operators.compute.api.instancetypes import Instancetype, SizeRef
from operators.compute.api.tasks import (
    Migrate,
    Rebuild,
    Rescue,
    Resize,
    Restore,
    Snapshot,
    SoftReboot,
)


class OperationType(StrEnum):
    """OperationType is the type of the task."""

    START = "Start"
    STOP = "Stop"
    REBOOT = "Reboot"
    REBUILD = "Rebuild"
    RESIZE = "Resize"
    MIGRATE = "Migrate"
    SOFT_REBOOT = "SoftReboot"
    SNAPSHOT = "Snapshot"
    RESTORE = "Restore"
    RESCUE = "Rescue"


class QueuePolicy(StrEnum):
    """QueuePolicy defines what happens if another Operation is in progress on the Instance."""

    WAIT = "Wait"
    FAIL_IF_BUSY = "FailIfBusy"


class OperationPhase(StrEnum):
    """OperationPhase is the progress of an Operation; the last three phases are final."""

    PENDING = "Pending"
    RUNNING = "Running"
    ROLLING_BACK = "RollingBack"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


FINAL_PHASES: Final = frozenset(
    {OperationPhase.SUCCEEDED, OperationPhase.FAILED, OperationPhase.CANCELLED}
)
"""Phases that an Operation never leaves."""


class StepState(StrEnum):
    """StepState is the progress of a step."""

    RUNNING = "Running"
    DONE = "Done"
    FAILED = "Failed"


class OperationCondition(StrEnum):
    """Conditions of an Operation."""

    READY = "Ready"
    """Ready is True when the Operation has succeeded, and False while it runs or if it failed."""
    ACCEPTED = "Accepted"
    """Accepted is True once the Operation has locked the Instance."""
    COMPLETE = "Complete"
    """Complete is True when the Operation has succeeded, like the condition of a Job."""
    FAILED = "Failed"
    """Failed is True when the Operation has failed or was cancelled."""
    STALLED = "Stalled"
    """Stalled is True when Failed is True. Tools that wait by kstatus report a failure then."""


class OperationReason(StrEnum):
    """Reasons of the conditions and events of an Operation."""

    QUEUED = "Queued"
    """Queued means that other Operations on the same Instance run first."""
    ACCEPTED = "Accepted"
    """Accepted means that the Operation has locked the Instance."""
    IN_PROGRESS = "InProgress"
    """InProgress means that the Operation is running; the message names the step."""
    ROLLING_BACK = "RollingBack"
    """RollingBack means that the changes of the Operation are being undone."""
    SUCCEEDED = "Succeeded"
    """Succeeded means that the Operation has completed its task."""
    CANCELLED = "Cancelled"
    """Cancelled means that spec.cancel, or a deletion, ended the Operation."""
    COPIED = "Copied"
    """Copied means that the Operation is a copy of one that has begun or ended, such as from a
    backup. It is not carried out; create an Operation with another name to repeat the task."""
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """DeadlineExceeded means that the Operation took longer than spec.timeoutSeconds."""
    ROLLED_BACK = "RolledBack"
    """RolledBack means that the Operation failed and the Instance was restored to its previous
    state."""
    ROLLBACK_FAILED = "RollbackFailed"
    """RollbackFailed means that the Instance could not be restored in time; check the Instance. All
    of its disks are kept, and it boots from the old disk as soon as it can."""
    TARGET_NOT_FOUND = "TargetNotFound"
    """TargetNotFound means that the Instance that spec.targetRef names does not exist."""
    TARGET_DELETING = "TargetDeleting"
    """TargetDeleting means that the Instance is being deleted."""
    BUSY = "Busy"
    """Busy means that another Operation was running, and spec.queue is FailIfBusy."""
    NOT_RUNNING = "NotRunning"
    """NotRunning means that the Operation needs a running machine, and the machine does not run."""
    NOT_MIGRATABLE = "NotMigratable"
    """NotMigratable means that KubeVirt cannot move the guest."""
    MIGRATION_FAILED = "MigrationFailed"
    """MigrationFailed means that the guest stayed on its node."""
    DISK_FAILED = "DiskFailed"
    """DiskFailed means that the new disk could not be filled; the machine was not changed."""
    SIZE_NOT_FOUND = "SizeNotFound"
    """SizeNotFound means that the InstanceSize or the instancetype that spec.resize names does not
    exist."""
    DISK_SIZE_NOT_SET = "DiskSizeNotSet"
    """DiskSizeNotSet means that the Instance has no spec.rootDisk.size, which it needs with an
    instancetype. Set it to the size of the current root disk."""
    UNVERIFIED = "Unverified"
    """Unverified means that the Operation was carried out, and that nothing can show whether the
    guest has booted: it has no agent and no readiness probe."""
    NOT_REBOOTED = "NotRebooted"
    """NotRebooted means that the guest was asked to reboot, and did not."""
    SNAPSHOT_FAILED = "SnapshotFailed"
    """SnapshotFailed means that KubeVirt could not take the snapshot; the message contains its
    error."""
    SNAPSHOT_UNSUPPORTED = "SnapshotUnsupported"
    """SnapshotUnsupported means that KubeVirt cannot take a snapshot of a disk, such as one whose
    StorageClass has no VolumeSnapshotClass. No snapshot was created."""
    SNAPSHOT_INCOMPLETE = "SnapshotIncomplete"
    """SnapshotIncomplete means that KubeVirt reported the snapshot as ready although it lacks a
    disk; the message names the disk."""
    SNAPSHOT_NOT_FOUND = "SnapshotNotFound"
    """SnapshotNotFound means that the snapshot does not exist, is not ready, or has no root
    disk."""
    NAME_TAKEN = "NameTaken"
    """NameTaken means that a snapshot with this name exists that the Operation did not create."""
    EXPIRED = "Expired"
    """Expired means that a finished Operation is deleted because of its age or because there are
    too many."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""


class TargetRef(KubernetesModel):
    """TargetRef names the Instance of an Operation."""

    name: DnsSubdomain
    """name is the name of an Instance in the same namespace."""
    uid: Uid | None = None
    """uid is the UID of the Instance. Defaults to the Instance that has the name when the Operation
    is accepted."""


def _only(field: str, type_: str, *, needed: bool) -> Rule:
    if needed:
        rule = f"has(self.{field}) == (self.type == '{type_}')"
        return Rule(rule, f"{field} must be set if type is {type_}, and only then")
    rule = f"!has(self.{field}) || self.type == '{type_}'"
    return Rule(rule, f"{field} may be set only if type is {type_}")


class OperationSpec(
    KubernetesModel,
    rules=(
        _only("rebuild", "Rebuild", needed=False),
        _only("resize", "Resize", needed=True),
        _only("migrate", "Migrate", needed=False),
        _only("softReboot", "SoftReboot", needed=False),
        _only("snapshot", "Snapshot", needed=False),
        _only("restore", "Restore", needed=True),
        _only("rescue", "Rescue", needed=True),
    ),
):
    """OperationSpec describes the task. It is immutable except for cancel."""

    type: Annotated[OperationType, Immutable()]
    """type is the type of the task. Immutable."""
    target_ref: Annotated[TargetRef, Immutable()]
    """targetRef names the Instance. Immutable."""
    rebuild: Annotated[Rebuild | None, Immutable()] = None
    """rebuild has the options of type Rebuild. Immutable."""
    resize: Annotated[Resize | None, Immutable()] = None
    """resize has the options of type Resize. Immutable."""
    migrate: Annotated[Migrate | None, Immutable()] = None
    """migrate has the options of type Migrate. Immutable."""
    soft_reboot: Annotated[SoftReboot | None, Immutable()] = None
    """softReboot has the options of type SoftReboot. Immutable."""
    snapshot: Annotated[Snapshot | None, Immutable()] = None
    """snapshot has the options of type Snapshot. Immutable."""
    restore: Annotated[Restore | None, Immutable()] = None
    """restore has the options of type Restore. Immutable."""
    rescue: Annotated[Rescue | None, Immutable()] = None
    """rescue has the options of type Rescue. Immutable."""
    timeout_seconds: Annotated[int, Field(ge=10, le=86_400), Immutable()] = 3600
    """timeoutSeconds is the time that the Operation can take after it was accepted, for a Rescue in
    addition to its durationSeconds. Immutable."""
    ttl_seconds_after_finished: Annotated[
        Annotated[int, Field(ge=0, le=31_536_000)] | None, Immutable()
    ] = None
    """ttlSecondsAfterFinished is the time after which a finished Operation is deleted. Defaults to
    no limit; the number of finished Operations is limited as well. Immutable."""
    queue: Annotated[QueuePolicy, Immutable()] = QueuePolicy.WAIT
    """queue is Wait to wait for other Operations on the Instance, or FailIfBusy to fail if there
    are any. Immutable."""
    cancel: Annotated[
        bool,
        Waive(
            "no-booleans",
            "the one thing that can be asked of a running Operation, as suspend of a Job",
        ),
        Rule("self || !oldSelf", "cancel cannot be withdrawn"),
    ] = False
    """cancel ends the Operation and undoes what can be undone."""

    @property
    def ready_seconds(self) -> int:
        """Time that the machine has to become ready on another disk, in seconds."""
        wanted = self.rebuild or self.restore or self.rescue
        return 900 if wanted is None else wanted.ready_seconds


class OperationStep(KubernetesModel):
    """OperationStep is one step of an Operation."""

    name: Annotated[str, Field(max_length=64)]
    """name is the name of the step."""
    state: Annotated[StepState, Waive("no-phase", "a step is begun and ended once")]
    """state is Running, Done or Failed."""
    started_at: Timestamp
    """startedAt is when the step began."""
    finished_at: Timestamp | None = None
    """finishedAt is when the step ended."""


class Facts(KubernetesModel):
    """Facts are written before a step acts on them, and never change afterwards."""

    vmi_uid: Annotated[Uid | None, Field(alias="vmiUID")] = None
    """vmiUID is the run of the machine when the Operation started."""
    node_name: DnsSubdomain | None = None
    """nodeName is the node of the guest when the Operation started."""
    old_disk: DnsSubdomain | None = None
    """oldDisk is the root disk when the Operation started."""
    new_disk: DnsSubdomain | None = None
    """newDisk is the root disk that the Operation creates."""
    old_size: DnsSubdomain | None = None
    """oldSize is the InstanceSize when the Operation started."""
    old_instancetype: Instancetype | None = None
    """oldInstancetype is the instancetype when the Operation started."""
    restart_uid: Annotated[Uid | None, Field(alias="restartUID")] = None
    """restartUID is the run that a Resize has to end."""
    agent_since: Timestamp | None = None
    """agentSince is the time at which the guest agent had connected when the Operation started."""
    asked_at: Timestamp | None = None
    """askedAt is the time of the request to reboot."""
    asked_again_at: Timestamp | None = None
    """askedAgainAt is the time of the repeated request to reboot."""
    agent_lost_at: Timestamp | None = None
    """agentLostAt is the time at which the guest agent was found disconnected."""
    snapshot: DnsSubdomain | None = None
    """snapshot is the VirtualMachineSnapshot that is taken."""
    volume_snapshot: DnsSubdomain | None = None
    """volumeSnapshot is the VolumeSnapshot from which the new disk is created."""

    @property
    def old_size_ref(self) -> SizeRef | None:
        """What defined the processors and the memory; None if it was not recorded."""
        return self.old_size if self.old_instancetype is None else self.old_instancetype


class OperationStatus(ObjectStatus):
    """OperationStatus is the progress of an Operation."""

    conditions: Conditions = []
    """conditions report the progress of the Operation, with the condition types of a Job."""
    phase: Annotated[
        OperationPhase | None, Waive("no-phase", "a task that is done once ends, as a Pod does")
    ] = None
    """phase is the current phase of the Operation. Succeeded, Failed and Cancelled are final."""
    step: Annotated[str, Field(max_length=64)] | None = None
    """step is the current step."""
    reason: Annotated[str, Field(max_length=64)] | None = None
    """reason is the cause of the outcome, in UpperCamelCase."""
    message: LongText = ""
    """message describes the current step or the error."""
    target_uid: Annotated[Uid | None, Field(alias="targetUID")] = None
    """targetUID is the UID of the Instance for which the Operation was accepted."""
    queue_position: Count | None = None
    """queuePosition is the number of earlier Operations on the Instance."""
    lease_name: DnsSubdomain | None = None
    """leaseName is the Lease by which the Operation has locked the Instance."""
    outcome: OperationPhase | None = None
    """outcome is the final phase after the clean-up."""
    started_at: Timestamp | None = None
    """startedAt is the time at which the Operation was accepted."""
    step_started_at: Timestamp | None = None
    """stepStartedAt is when the step began."""
    finished_at: Timestamp | None = None
    """finishedAt is when the Operation ended."""
    duration: Annotated[str, Field(max_length=32)] | None = None
    """duration is how long the Operation took, such as 1m30s."""
    facts: Facts = Facts()
    """facts are observations that the steps use."""
    steps: Annotated[list[OperationStep], ListMap("name"), Field(max_length=16)] = []
    """steps are the steps of the Operation in order."""


_FINAL: Final = "['Succeeded', 'Failed', 'Cancelled']"


class Operation(
    CustomResource,
    group=COMPUTE_GROUP,
    version="v1alpha1",
    plural="operations",
    short_names=("op",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Type", "string", ".spec.type"),
        PrinterColumn("Target", "string", ".spec.targetRef.name"),
        PrinterColumn("Phase", "string", ".status.phase"),
        PrinterColumn("Step", "string", ".status.step"),
        PrinterColumn("Duration", "string", ".status.duration"),
        PrinterColumn("Message", "string", ".status.message", priority=1),
        AGE,
    ),
    rules=(
        Rule(
            "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
            f"!(oldSelf.status.phase in {_FINAL}) || "
            "(has(self.status) && has(self.status.phase) && "
            "self.status.phase == oldSelf.status.phase)",
            "the result of a finished Operation is immutable",
            field_path=".status.phase",
        ),
    ),
    conditions=OperationCondition,
    reasons=OperationReason,
):
    """Operation is a task on an Instance that runs once, like a Job."""

    spec: OperationSpec
    """spec is the task."""
    status: OperationStatus | None = None
    """status is the progress of the Operation."""

    @property
    def observed(self) -> OperationStatus:
        """The status, or an empty status if there is none yet."""
        return self.status or OperationStatus()

    @property
    def finished(self) -> bool:
        """Whether the Operation has ended, successfully or not."""
        return self.observed.phase in FINAL_PHASES


OPERATION: Final[Kind] = kind_of(Operation)
"""The kind as a value, for the client and the generator."""
