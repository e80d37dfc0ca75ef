"""IPClaim v1alpha1: an address that a user keeps, and the object to which it routes traffic."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import (
    AGE,
    READY_COLUMN,
    Conditions,
    Count,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    Immutable,
    Int32,
    IntFormat,
    KubernetesModel,
    ListAtomic,
    ListMap,
    ObjectStatus,
    Port,
    PrinterColumn,
    Rule,
    Uid,
    Waive,
    kind_of,
)
from operators.ipam.api.v1alpha1.fields import GROUP, Address, Cidr, NamedReference, PoolReference

PORTS_LIMIT: Final = 64
"""Maximum number of ports of a claim."""


class Sticky(StrEnum):
    """Sticky defines whether a claim prefers the address of an earlier claim of the same name."""

    PREFER = "Prefer"
    NEVER = "Never"


class DeletionPolicy(StrEnum):
    """DeletionPolicy defines what happens when a claim with a target is deleted."""

    RELEASE = "Release"
    REFUSE_WHILE_ASSIGNED = "RefuseWhileAssigned"


class TargetKind(StrEnum):
    """TargetKind is the kind of object to which an address routes traffic."""

    INSTANCE = "Instance"
    SERVICE = "Service"
    ADDRESS = "Address"


class Protocol(StrEnum):
    """Protocol is the transport protocol of a port."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


class Traffic(StrEnum):
    """Traffic defines which packets to an address are routed to its target."""

    PORTS = "Ports"
    ALL = "All"


class BindingState(StrEnum):
    """BindingState is the progress of the binding of an address to its target."""

    UNBOUND = "Unbound"
    PENDING = "Pending"
    BOUND = "Bound"
    MOVING = "Moving"
    WITHDRAWN = "Withdrawn"


class ClaimCondition(StrEnum):
    """Conditions of an IPClaim."""

    READY = "Ready"
    """Ready is True when the claim has the requested addresses: one, or two for dual stack."""
    BOUND = "Bound"
    """Bound is True when the address routes traffic to its target: the Service has the endpoints
    of the target, and the load balancer reports the address if the operator is set up for one."""
    ANNOUNCED = "Announced"
    """Announced is True when the load balancer reports the address for the Service of the claim.
    It is Unknown when the setting `announcement` names no load balancer, and absent while the claim
    has no Service."""
    TERMINATING = "Terminating"
    """Terminating is True while the claim is being deleted; the reason says what the deletion waits
    for."""


class ClaimReason(StrEnum):
    """Reasons of the conditions and events of an IPClaim."""

    ALLOCATED = "Allocated"
    """Allocated means that the claim has its address."""
    POOL_EXHAUSTED = "PoolExhausted"
    """PoolExhausted means that no address is free; status.queuePosition is the place of the claim
    in the queue."""
    POOL_NOT_FOUND = "PoolNotFound"
    """PoolNotFound means that the IPPool that spec.poolRef names does not exist."""
    POOL_NOT_READY = "PoolNotReady"
    """PoolNotReady means that the pool is being deleted, or cannot be read."""
    POOL_DRAINING = "PoolDraining"
    """PoolDraining means that spec.allocation of the pool is Draining."""
    ADDRESS_TAKEN = "AddressTaken"
    """AddressTaken means that the address in spec.address is allocated to another claim."""
    ADDRESS_QUARANTINED = "AddressQuarantined"
    """AddressQuarantined means that the requested address is in quarantine after its release."""
    ADDRESS_OUT_OF_RANGE = "AddressOutOfRange"
    """AddressOutOfRange means that the pool does not contain the requested address."""
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    """NamespaceNotAllowed means that the pool does not serve the namespace of the claim."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """QuotaExceeded means that the namespace has as many addresses of the pool, including addresses
    in quarantine, as spec.quotaPerNamespace of the pool allows."""
    FAMILY_MISMATCH = "FamilyMismatch"
    """FamilyMismatch means that both pools of the claim are of one family."""
    ALLOCATION_FAILED = "AllocationFailed"
    """AllocationFailed means that the API server refused the entry of the ledger."""
    RESTORING = "Restoring"
    """Restoring means that the entry of the ledger was lost and is being recreated."""
    ADDRESS_LOST = "AddressLost"
    """AddressLost means that the ledger has no entry of the address in status.address for this
    claim, and that the address has another entry or is not in the pool. Create another claim to
    get another address."""
    NO_TARGET = "NoTarget"
    """NoTarget means that spec.target is not set."""
    NO_ADDRESS = "NoAddress"
    """NoAddress means that the claim has no address that could route traffic."""
    BOUND = "Bound"
    """Bound means that the address routes traffic to its target."""
    ANNOUNCED = "Announced"
    """Announced means that the load balancer reports the address for the Service."""
    NOT_OBSERVED = "NotObserved"
    """NotObserved means that nothing reports whether the network delivers the address to the
    nodes, because the setting `announcement` is ExternalIPs or None."""
    WAITING_FOR_LOAD_BALANCER = "WaitingForLoadBalancer"
    """WaitingForLoadBalancer means that no load balancer has reported an address for the Service.
    The cluster has none, or its pools do not contain the address."""
    OTHER_ADDRESS = "OtherAddress"
    """OtherAddress means that the load balancer reports another address for the Service. Check the
    setting `announcement`: each load balancer reads an annotation of its own."""
    REFUSED = "Refused"
    """Refused means that the load balancer refuses the address; the message contains its reason."""
    TARGET_NOT_FOUND = "TargetNotFound"
    """TargetNotFound means that the object that spec.target names does not exist."""
    TARGET_NOT_RUNNING = "TargetNotRunning"
    """TargetNotRunning means that the target has no running pod or endpoint that could receive
    traffic."""
    TARGET_NOT_ALLOWED = "TargetNotAllowed"
    """TargetNotAllowed means that spec.target cannot receive the traffic: it is a plain IP and the
    pool denies that, its endpoints are not pods, or it is the Service of another claim."""
    NO_PORTS = "NoPorts"
    """NoPorts means that neither spec.ports nor the target names a port, so that no Service routes
    traffic. Set spec.ports."""
    WHOLE_ADDRESS_UNSUPPORTED = "WholeAddressUnsupported"
    """WholeAddressUnsupported means that spec.traffic is All, and that nothing routes a whole
    address: the setting `cozyProxy` is off, or the claim has an IPv6 address."""
    ALLOWED_CIDRS_UNSUPPORTED = "AllowedCIDRsUnsupported"
    """AllowedCIDRsUnsupported means that spec.allowedCidrs is set and that no load balancer
    announces addresses (setting `announcement`), so that nothing would enforce it."""
    ADDRESS_CONFLICT = "AddressConflict"
    """AddressConflict means that another Service of the cluster has the address as well, so that
    its traffic can go there. An administrator must remove the address from that Service."""
    FAMILY_NOT_SERVED = "FamilyNotServed"
    """FamilyNotServed means that the cluster has no Services of one of the two families of the
    claim; the address of the other family routes traffic."""
    OWNER_RELEASED = "OwnerReleased"
    """OwnerReleased means that the claim no longer belongs to the Instance that created it, because
    spec.target is another Instance. The claim stays if the former Instance is deleted."""
    NO_POD_NETWORK = "NoPodNetwork"
    """NoPodNetwork means that the machine has no interface on the pod network, so that no Service
    can reach it."""
    MOVING = "Moving"
    """Moving means that traffic is no longer routed to the previous target and not yet to the next
    one."""
    MIGRATING = "Migrating"
    """Migrating means that the machine is moving to another node; the address follows when the
    migration has finished."""
    NAME_TAKEN = "NameTaken"
    """NameTaken means that a Service or EndpointSlice that the operator does not own has the
    name."""
    BINDING_FAILED = "BindingFailed"
    """BindingFailed means that the API server refused the Service or its EndpointSlice."""
    STILL_ASSIGNED = "StillAssigned"
    """StillAssigned means that spec.deletionPolicy prevents the deletion while the object that
    spec.target names exists; remove spec.target to delete the claim."""
    WITHDRAWING = "Withdrawing"
    """Withdrawing means that the operator is removing the route from the address to its target."""
    RELEASED = "Released"
    """Released means that the claim released its address."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""


class ClaimTarget(
    KubernetesModel,
    rules=(
        Rule(
            "self.kind == 'Address' ? has(self.address) && !has(self.name) "
            ": has(self.name) && !has(self.address)",
            "target needs an address for kind Address, and a name for any other kind",
        ),
    ),
):
    """ClaimTarget is the object that receives the traffic, in the namespace of the claim."""

    kind: TargetKind
    """kind is Instance, Service or Address."""
    name: DnsSubdomain | None = None
    """name is the name of the Instance or Service."""
    address: Address | None = None
    """address is a plain IP; the pool must allow it."""

    def __str__(self) -> str:
        """Render for people: `Instance web`."""
        return f"{self.kind} {self.name or self.address}"


class ClaimPort(KubernetesModel):
    """ClaimPort is a port on which the address accepts traffic."""

    name: Annotated[DnsLabel, Field(max_length=15)]
    """name is the name of the port, unique in the claim."""
    protocol: Protocol = Protocol.TCP
    """protocol is TCP, UDP or SCTP."""
    port: Annotated[Port, IntFormat("int32")]
    """port is the port of the address."""
    target_port: Annotated[Port, IntFormat("int32")] | None = None
    """targetPort is the port of the target. Defaults to port."""


class SecondaryAddress(KubernetesModel):
    """SecondaryAddress requests a second address of the other family."""

    pool_ref: PoolReference
    """poolRef names the pool of the second address."""
    address: Address | None = None
    """address is the requested address."""


class IPClaimSpec(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.traffic) || self.traffic != 'All' || !has(self.ports) || "
            "size(self.ports) == 0",
            "ports must be empty if traffic is All",
        ),
        Rule(
            "!has(self.traffic) || self.traffic != 'All' || !has(self.target) || "
            "self.target.kind != 'Service'",
            "target must not be a Service if traffic is All",
        ),
        Rule(
            "!has(self.traffic) || self.traffic != 'All' || !has(self.secondary)",
            "secondary must not be set if traffic is All",
        ),
        Rule(
            "!has(self.traffic) || self.traffic != 'All' || !has(self.allowedCidrs) || "
            "size(self.allowedCidrs) == 0",
            "allowedCidrs must be empty if traffic is All",
        ),
    ),
):
    """IPClaimSpec is the desired state of a claim."""

    pool_ref: Annotated[PoolReference, Immutable()]
    """poolRef names the pool of the address. Immutable."""
    address: Annotated[Address | None, Immutable()] = None
    """address is the requested address. Defaults to any free address. Immutable."""
    secondary: SecondaryAddress | None = None
    """secondary requests a second address of the other family (dual stack). Immutable once
    status.secondaryAddress is set."""
    sticky: Sticky = Sticky.PREFER
    """sticky is Prefer to reuse the address that an earlier claim of the same name released, while
    it is in quarantine, or Never."""
    priority: Annotated[Int32, Field(ge=-1000, le=1000)] = 0
    """priority orders the claims that wait for an address: higher first, then by age. The pool may
    limit it (spec.maxPriority)."""
    target: ClaimTarget | None = None
    """target is the object to which traffic is routed. Changing it moves the address. Defaults to
    no target."""
    ports: Annotated[list[ClaimPort], ListMap("name"), Field(max_length=PORTS_LIMIT)] = []
    """ports are the ports on which the address accepts traffic. Defaults to the ports of a target
    of kind Service. Required for any other target: without ports Bound is False (NoPorts)."""
    traffic: Traffic = Traffic.PORTS
    """traffic is Ports, or All to route every port of TCP and UDP and ICMP to the target, and to
    send the traffic of the target with this address. All needs the setting `cozyProxy` and an IPv4
    address. Defaults to Ports."""
    allowed_cidrs: Annotated[list[Cidr], ListAtomic(), Field(max_length=64)] = []
    """allowedCidrs are the addresses of clients that can reach the target. If it names networks of
    one family only, no client of the other family can. Needs a load balancer (setting
    `announcement`). Defaults to all addresses."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RELEASE
    """deletionPolicy is Release, or RefuseWhileAssigned to prevent the deletion of the claim while
    its target exists."""


class ClaimBinding(KubernetesModel):
    """ClaimBinding describes where the traffic of an address is routed."""

    state: Annotated[
        BindingState,
        Waive("no-phase", "the condition Bound has the reason; this field is for a printer column"),
    ] = BindingState.UNBOUND
    """state is Unbound, Pending, Bound, Moving or Withdrawn."""
    epoch: Annotated[int, IntFormat("int64"), Field(ge=0)] = 0
    """epoch increases each time that traffic is routed to another place."""
    target: Annotated[str, Field(max_length=280)] | None = None
    """target is the object to which traffic is routed, such as Instance/web."""
    target_uid: Annotated[Uid | None, Field(alias="targetUID")] = None
    """targetUID is the UID of the target."""
    vmi_uid: Annotated[Uid | None, Field(alias="vmiUID")] = None
    """vmiUID is the UID of the run of the machine."""
    vmi_created: Annotated[str, Field(max_length=40)] | None = None
    """vmiCreated is the start time of that run. The address never returns to an earlier run."""
    pod_uid: Annotated[Uid | None, Field(alias="podUID")] = None
    """podUID is the UID of the pod in which the machine runs."""
    pod_name: DnsSubdomain | None = None
    """podName is the name of that pod."""
    pod_ip: Annotated[str | None, Field(alias="podIP", max_length=45)] = None
    """podIP is the address to which traffic is routed."""
    node_name: DnsSubdomain | None = None
    """nodeName is the node of the pod."""


class IPClaimStatus(ObjectStatus):
    """IPClaimStatus is the observed state of a claim."""

    conditions: Conditions = []
    """conditions report whether the claim has its address, and whether traffic is routed to its
    target."""
    address: Annotated[Address | None, Immutable(once=True)] = None
    """address is the address that the claim has; it never changes."""
    allocation_ref: NamedReference | None = None
    """allocationRef names the entry of the ledger."""
    secondary_address: Annotated[Address | None, Immutable(once=True)] = None
    """secondaryAddress is the second address that the claim has; it never changes."""
    secondary_allocation_ref: NamedReference | None = None
    """secondaryAllocationRef names the entry of the second address."""
    queue_position: Count | None = None
    """queuePosition is the place among the claims that wait, 1 for the next; rounded beyond 100."""
    binding: ClaimBinding | None = None
    """binding is where traffic is routed."""


class IPClaim(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="ipclaims",
    short_names=("ipc",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Pool", "string", ".spec.poolRef.name"),
        PrinterColumn("Address", "string", ".status.address"),
        PrinterColumn("Target", "string", ".spec.target.name"),
        PrinterColumn("Node", "string", ".status.binding.nodeName"),
        READY_COLUMN,
        PrinterColumn("Bound", "string", '.status.conditions[?(@.type=="Bound")].status'),
        PrinterColumn("Queue", "integer", ".status.queuePosition"),
        PrinterColumn("Second", "string", ".status.secondaryAddress", priority=1),
        PrinterColumn("Pod-IP", "string", ".status.binding.podIP", priority=1),
        PrinterColumn("Epoch", "integer", ".status.binding.epoch", priority=1),
        PrinterColumn("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason'),
        AGE,
    ),
    rules=(
        Rule(
            "!has(self.spec.secondary) || self.spec.secondary.poolRef.name != "
            "self.spec.poolRef.name",
            "spec.secondary.poolRef must name another pool, of the other family",
            field_path=".spec.secondary",
        ),
        Rule(
            "!has(oldSelf.status) || !has(oldSelf.status.secondaryAddress) || "
            "(has(self.spec.secondary) && has(oldSelf.spec.secondary) && "
            "self.spec.secondary == oldSelf.spec.secondary)",
            "spec.secondary is immutable once status.secondaryAddress is set",
            field_path=".spec.secondary",
        ),
    ),
    conditions=ClaimCondition,
    reasons=ClaimReason,
):
    """IPClaim requests an address of a pool and routes it to a target."""

    spec: IPClaimSpec
    """spec is the desired state of the claim."""
    status: IPClaimStatus | None = None
    """status is the observed state of the claim."""


IP_CLAIM = kind_of(IPClaim)
"""The kind IPClaim."""
