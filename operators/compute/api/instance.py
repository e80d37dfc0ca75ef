"""Instance v1alpha1: a virtual machine with its disk, its network and its address.

The spec has three kinds of fields. Most describe the desired state and can change at any time.
`image` and `rootDisk` define how a root disk is created: they take effect when a disk is created,
initially and at a Rebuild. `directives` request changes of the running machine; Operations write
them, and people can write them as well.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    READY_COLUMN,
    Conditions,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    Immutable,
    KubernetesModel,
    LabelMap,
    ListAtomic,
    ListMap,
    LocalObjectReference,
    ObjectReference,
    ObjectStatus,
    PrinterColumn,
    Rule,
    ShortText,
    Uid,
    Waive,
    kind_of,
)
from libs.common.kinds import Kind
from libs.contracts.compute import COMPUTE_GROUP
from libs.contracts.images import Image
from operators.compute.api.addresses import PublicIP
from operators.compute.api.directives import (
    Directive,
    DirectiveKind,
    Directives,
    DirectiveStatus,
)
from operators.compute.api.disks import KeptDisk, RootDisk, RootDiskStatus
from operators.compute.api.instancetypes import Instancetype, Preference, SizeRef
from operators.compute.api.probes import BootCheck, ReadinessProbe, VerifiedBoot
from operators.compute.api.reasons import ConditionType, Reason

GROUP: Final = COMPUTE_GROUP
"""API group of the operator."""
ROOT: Final = "root"
"""Name of the root disk within the machine."""
CLOUD_INIT: Final = "cloud-init"
"""Name of the disk with the initial configuration of the guest."""
RESCUED: Final = "rescued"
"""Name of the disk that is being repaired while the machine boots from another disk."""


class Power(StrEnum):
    """Power is whether the machine should run.

    (Not On and Off: without quotes YAML reads these as booleans.)
    """

    RUNNING = "Running"
    STOPPED = "Stopped"


class EvictionStrategy(StrEnum):
    """EvictionStrategy defines what happens when the node of the guest is drained."""

    LIVE_MIGRATE = "LiveMigrate"
    LIVE_MIGRATE_IF_POSSIBLE = "LiveMigrateIfPossible"
    EXTERNAL = "External"
    NONE = "None"


class OnGuestShutdown(StrEnum):
    """OnGuestShutdown defines what happens when the guest shuts itself down."""

    STOP = "Stop"
    RESTART = "Restart"


class VolumeSharing(StrEnum):
    """VolumeSharing defines how many machines can use a volume at the same time."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"


class DeletionMode(StrEnum):
    """DeletionMode defines what happens to a child when the Instance is deleted."""

    DELETE = "Delete"
    RETAIN = "Retain"


class Phase(StrEnum):
    """Phase summarizes the conditions for people."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    STARTING = "Starting"
    RUNNING = "Running"
    REBOOTING = "Rebooting"
    REBUILDING = "Rebuilding"
    RESCUE = "Rescue"
    MIGRATING = "Migrating"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    PAUSED = "Paused"
    FAILED = "Failed"
    DELETING = "Deleting"


class Ssh(KubernetesModel):
    """Ssh defines who can log in."""

    user: Annotated[str, Field(max_length=32, pattern=r"^[a-z_][a-z0-9_-]*$")] | None = None
    """user is the name of the first user. Defaults to the default user of the image."""
    authorized_keys: Annotated[
        list[Annotated[str, Field(max_length=4096, pattern=r"^[^\n\r]+$")]],
        ListAtomic(),
        Field(max_length=32),
    ] = []
    """authorizedKeys are the public SSH keys of the user."""


class AttachedVolume(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.demoVolume) != has(self.claim)",
            "a volume needs exactly one of demoVolume and claim",
        ),
    ),
):
    """AttachedVolume is an additional disk of the machine."""

    name: Annotated[
        DnsLabel,
        Rule(
            f"!(self in ['{ROOT}', '{CLOUD_INIT}', '{RESCUED}'])",
            f"{ROOT}, {CLOUD_INIT} and {RESCUED} are reserved names",
        ),
    ]
    """name is the name of the disk in the machine."""
    demo_volume: DnsSubdomain | None = None
    """demoVolume is the name of a DemoVolume in the same namespace."""
    claim: DnsSubdomain | None = None
    """claim is the name of a PersistentVolumeClaim in the same namespace. Only one machine can use
    it at a time."""
    sharing: VolumeSharing = VolumeSharing.EXCLUSIVE
    """sharing is Exclusive, or Shared to let several machines use the disk at the same time. All of
    them must set Shared, and the claim must have access mode ReadWriteMany. This destroys any file
    system that is not a cluster file system. Defaults to Exclusive."""

    @property
    def shared(self) -> bool:
        """Whether several machines may use the disk at the same time."""
        return self.sharing is VolumeSharing.SHARED


class Placement(KubernetesModel):
    """Placement restricts the nodes on which the machine can run."""

    node_selector: LabelMap = {}
    """nodeSelector are labels that the node must have."""
    spread_group: DnsLabel | None = None
    """spreadGroup names a group of Instances that run on different nodes if possible."""


class DeletionPolicy(KubernetesModel):
    """DeletionPolicy defines what is kept when the Instance is deleted."""

    root_disk: DeletionMode = DeletionMode.DELETE
    """rootDisk is Delete, or Retain to keep the disk and its data."""
    public_ip: Annotated[DeletionMode, Field(alias="publicIP")] = DeletionMode.DELETE
    """publicIP is Delete, or Retain to keep the IPClaim of mode Auto, and so the address."""


class InstanceSpec(
    KubernetesModel,
    rules=(
        Rule(
            "has(self.size) != has(self.instancetype)",
            "exactly one of size and instancetype is needed",
        ),
        Rule(
            "!has(self.instancetype) || (has(self.rootDisk) && has(self.rootDisk.size))",
            "rootDisk.size is needed with instancetype, which has no size of a disk",
        ),
        Rule(
            "!has(self.ssh) || !has(self.userDataSecretName)",
            "ssh is added to the user data that the operator generates; "
            "with userDataSecretName, add users to that Secret",
        ),
    ),
):
    """InstanceSpec is the desired state of an Instance."""

    size: DnsSubdomain | None = None
    """size is the name of an InstanceSize. Either size or instancetype is needed."""
    instancetype: Instancetype | None = None
    """instancetype names an instancetype of KubeVirt, such as u1.medium of the
    common-instancetypes, instead of an InstanceSize. A change of the named object does not reach
    machines that use it already."""
    image: Image
    """image is the image of the root disk. A change takes effect at the next Rebuild."""
    root_disk: RootDisk = RootDisk()
    """rootDisk describes the root disk. A change takes effect at a Rebuild."""
    preference: Preference | None = None
    """preference names a preference of KubeVirt, such as windows.11 of the common-instancetypes. It
    chooses buses, firmware and features of the machine, and with an instancetype the CPU topology.
    Without it disks use virtio. A change takes effect at the next start."""
    readiness_probe: ReadinessProbe | None = None
    """readinessProbe checks that the guest responds. Ready and all Operations wait for it. A change
    takes effect at the next start."""
    boot_check: BootCheck = BootCheck.AUTO
    """bootCheck is what proves that a guest has booted if readinessProbe is not set: GuestAgent
    (the guest agent must respond), Running (the machine runs; nothing is verified) or Auto
    (GuestAgent if the guest agent responded in the last verified run, else Running). Defaults to
    Auto."""
    power: Power = Power.RUNNING
    """power is Running or Stopped."""
    on_guest_shutdown: OnGuestShutdown = OnGuestShutdown.STOP
    """onGuestShutdown says what happens when the guest shuts itself down: with Stop the machine
    stays off until an Operation of type Start or Reboot, with Restart it boots again. A guest that
    crashes, or whose node is drained, boots again in both cases. Defaults to Stop."""
    network_ref: Annotated[LocalObjectReference | None, Immutable()] = None
    """networkRef names the Network of the machine. Defaults to the pod network. Immutable."""
    firewall_ref: LocalObjectReference | None = None
    """firewallRef names a Firewall. The machine starts only when the Firewall protects it."""
    private_ip: Annotated[
        Annotated[str, Field(max_length=45), Rule("isIP(self)", "must be an IP address")] | None,
        Field(alias="privateIP"),
        Immutable(),
    ] = None
    """privateIP is the address on the Network. Defaults to an allocated address. Immutable."""
    public_ip: Annotated[PublicIP, Field(alias="publicIP")] = PublicIP()
    """publicIP defines the public address."""
    hostname: DnsLabel | None = None
    """hostname is the hostname of the guest. Defaults to the name of the Instance."""
    ssh: Ssh | None = None
    """ssh defines who can log in to the guest."""
    user_data_secret_name: DnsSubdomain | None = None
    """userDataSecretName is the name of a Secret whose key userdata is passed to cloud-init
    unchanged."""
    volumes: Annotated[list[AttachedVolume], ListMap("name"), Field(max_length=16)] = []
    """volumes are additional disks."""
    placement: Placement = Placement()
    """placement restricts the nodes on which the machine can run."""
    eviction_strategy: EvictionStrategy = EvictionStrategy.LIVE_MIGRATE_IF_POSSIBLE
    """evictionStrategy defines what happens when the node is drained: LiveMigrate (the drain waits
    until the machine has moved), LiveMigrateIfPossible (a machine that cannot move is shut down),
    External (another controller moves it) or None (the machine is shut down)."""
    termination_grace_period_seconds: Annotated[int, Field(ge=0, le=3600)] = 120
    """terminationGracePeriodSeconds is the time that the guest has to shut down."""
    deletion_policy: DeletionPolicy = DeletionPolicy()
    """deletionPolicy defines what is kept when the Instance is deleted."""
    directives: Directives = []
    """directives are requests to change the machine. Operations write them."""

    @property
    def size_ref(self) -> SizeRef:
        """What defines the processors and the memory."""
        return self.size or "" if self.instancetype is None else self.instancetype

    def directive(self, kind: DirectiveKind) -> Directive | None:
        """Return the directive of a kind, or None."""
        return next((held for held in self.directives if held.kind is kind), None)


class InstanceStatus(ObjectStatus):
    """InstanceStatus is the observed state of an Instance."""

    conditions: Conditions = []
    """conditions report whether the machine matches the spec, and why not."""
    phase: Annotated[
        Phase | None,
        Waive("no-phase", "shown to people, as clouds do; the conditions have all details"),
    ] = None
    """phase is a summary of the conditions for people. Programs should read the conditions."""
    size: DnsSubdomain | None = None
    """size is the current InstanceSize of the machine."""
    instancetype: Instancetype | None = None
    """instancetype is the current instancetype of the machine."""
    vm_uid: Annotated[Uid | None, Field(alias="vmUID")] = None
    """vmUID is the UID of the VirtualMachine."""
    vmi_uid: Annotated[Uid | None, Field(alias="vmiUID")] = None
    """vmiUID is the UID of the current run. It changes at each start."""
    node_name: DnsSubdomain | None = None
    """nodeName is the node on which the guest runs."""
    root_disk: RootDiskStatus | None = None
    """rootDisk is the disk that the machine boots from."""
    kept_disks: Annotated[list[KeptDisk], ListMap("name"), Field(max_length=64)] = []
    """keptDisks are replaced root disks that are kept for rootDisk.keepReplacedSeconds, since
    nothing has shown that the guest boots from the new disk."""
    verified_boot: VerifiedBoot | None = None
    """verifiedBoot is the last run whose boot was verified."""
    mac_address: Annotated[str, Field(max_length=17)] | None = None
    """macAddress is the MAC address of the first interface. It never changes."""
    firmware_uuid: Annotated[str | None, Field(alias="firmwareUUID", max_length=36)] = None
    """firmwareUUID is the system UUID that the guest sees. It never changes."""
    private_ip: Annotated[str | None, Field(alias="privateIP", max_length=45)] = None
    """privateIP is the address of the first interface: the allocated one on a Network with
    addresses of its own, else the address of the pod. It is never what the guest reports."""
    cloud_init_hash: Annotated[str | None, Field(max_length=64)] = None
    """cloudInitHash identifies the content of the cloud-init Secret that was written last."""
    public_ip: Annotated[str | None, Field(alias="publicIP", max_length=45)] = None
    """publicIP is the public address that is allocated."""
    operation: ObjectReference | None = None
    """operation is the Operation that is in progress on the Instance."""
    directives: Annotated[list[DirectiveStatus], ListMap("kind"), Field(max_length=4)] = []
    """directives is the state of spec.directives."""
    message: ShortText = ""
    """message is the message of the condition Ready."""

    @property
    def size_ref(self) -> SizeRef | None:
        """What defines the processors and the memory that the machine has; None if unknown."""
        return self.size if self.instancetype is None else self.instancetype


class Instance(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="instances",
    short_names=("inst",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Phase", "string", ".status.phase"),
        PrinterColumn("Size", "string", ".spec.size"),
        PrinterColumn("Node", "string", ".status.nodeName"),
        PrinterColumn("Private-IP", "string", ".status.privateIP"),
        PrinterColumn("Public-IP", "string", ".status.publicIP"),
        READY_COLUMN,
        PrinterColumn("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Operation", "string", ".status.operation.name", priority=1),
        PrinterColumn("Instancetype", "string", ".spec.instancetype.name", priority=1),
        PrinterColumn("Disk", "string", ".status.rootDisk.name", priority=1),
        PrinterColumn("Message", "string", ".status.message", priority=1),
        AGE,
    ),
    rules=(
        Rule(
            "self.metadata.name.size() <= 63 && "
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "the name becomes a host name: use at most 63 lower-case letters, digits and dashes",
        ),
    ),
    conditions=ConditionType,
    reasons=Reason,
):
    """Instance is a virtual machine with its disk, its network and its address."""

    spec: InstanceSpec
    """spec is the desired state of the machine."""
    status: InstanceStatus | None = None
    """status is the observed state of the machine."""

    @property
    def observed(self) -> InstanceStatus:
        """The status, or an empty status if there is none yet."""
        return self.status or InstanceStatus()


INSTANCE: Final[Kind] = kind_of(Instance)
"""The kind as a value, for the client and the generator."""
