"""Network v1alpha1: addresses and routes of instances, and who can reach them by default."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from libs.common.crd import (
    AGE,
    Conditions,
    Count,
    CustomResource,
    Immutable,
    KubernetesModel,
    ListAtomic,
    ListMap,
    LocalObjectReference,
    ObjectReference,
    ObjectStatus,
    PrinterColumn,
    Rule,
    kind_of,
)
from libs.common.kinds import Kind
from operators.network.api.v1alpha1.fields import (
    GROUP,
    READY_COLUMNS,
    Cidr,
    Ip,
    Users,
    parse_address,
    parse_block,
)
from operators.network.api.v1alpha1.provider import Mtu, Vlan

_TWO_FAMILIES: Final = "cidrs holds one block, or one of IPv4 and one of IPv6"
_OFF_LINK: Final = "must be in one of spec.cidrs"
_ONE_HOP: Final = "nextHop needs exactly one of ip, instanceRef and blackhole"
_NO_BLACKHOLE: Final = (
    "blackhole has no effect, because no guest receives such a route: deny the destination with a "
    "rule of a Firewall"
)
_FAMILY: Final = "nextHop.ip must be of the family of destination"
_PROVIDER: Final = "backend Multus needs providerNetworkRef"
_MULTUS_ONLY: Final = "providerNetworkRef, vlan, mtu and poolRef need backend Multus"
_NO_EFFECT: Final = (
    "{} has no effect on backend PodNetwork, where the network plugin configures guests; use "
    "backend Multus, or remove the field"
)
_BINDING: Final = "binding needs backend PodNetwork"


class Backend(StrEnum):
    """Backend is the technology that carries the packets of a network."""

    POD_NETWORK = "PodNetwork"
    MULTUS = "Multus"


class Binding(StrEnum):
    """Binding defines how a guest is connected to the pod network."""

    MASQUERADE = "Masquerade"
    BRIDGE = "Bridge"
    PASST = "Passt"


class Isolation(StrEnum):
    """Isolation defines who can reach an instance without a firewall."""

    NAMESPACE = "Namespace"
    NETWORK = "Network"
    NONE = "None"


class Blackhole(StrEnum):
    """Blackhole defines how the packets of a route are dropped."""

    DROP = "Drop"
    REJECT = "Reject"


class NetworkCondition(StrEnum):
    """Conditions of a Network."""

    READY = "Ready"
    """Ready is True when the network matches its spec."""
    ISOLATED = "Isolated"
    """Isolated is True when the policy exists that denies traffic to each instance unless another
    policy allows it. No virtual machine of the network starts before."""
    ATTACHABLE = "Attachable"
    """Attachable is True when machines can be attached. It is present with backend Multus only."""
    ROUTES_RESOLVED = "RoutesResolved"
    """RoutesResolved is True when each route has a next hop on the network and is passed to guests.
    It is present if the spec has routes."""
    TERMINATING = "Terminating"
    """Terminating is True while the Network is being deleted; the reason says what the deletion
    waits for."""


class NetworkReason(StrEnum):
    """Reasons of the conditions, routes and events of a Network."""

    IN_PLACE = "InPlace"
    """InPlace means that all objects of the network exist and are up to date."""
    POLICY_MISSING = "PolicyMissing"
    """PolicyMissing means that a NetworkPolicy does not exist or is not up to date."""
    NAME_TAKEN = "NameTaken"
    """NameTaken means that an object that the operator does not own has a name that it needs."""
    WRITE_REFUSED = "WriteRefused"
    """WriteRefused means that the API server refused an object; the message says why."""
    MULTUS_MISSING = "MultusMissing"
    """MultusMissing means that the cluster does not serve NetworkAttachmentDefinition."""
    MULTI_POLICY_MISSING = "MultiPolicyMissing"
    """MultiPolicyMissing means that the cluster does not serve MultiNetworkPolicy, without which
    nothing restricts the traffic of an attached interface."""
    PROVIDER_NETWORK_MISSING = "ProviderNetworkMissing"
    """ProviderNetworkMissing means that spec.providerNetworkRef is not set, or names no
    ProviderNetwork. Machines that are attached stay attached; no other machine is attached."""
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    """NamespaceNotAllowed means that the ProviderNetwork does not allow this namespace."""
    VLAN_NOT_ALLOWED = "VlanNotAllowed"
    """VlanNotAllowed means that the ProviderNetwork does not allow spec.vlan, or untagged packets
    if spec.vlan is not set."""
    VLAN_TAKEN = "VlanTaken"
    """VlanTaken means that another namespace has spec.vlan of the bridge. Choose another VLAN; an
    administrator can share VLANs with spec.vlanSharing of the ProviderNetwork."""
    MTU_TOO_LARGE = "MtuTooLarge"
    """MtuTooLarge means that the ProviderNetwork carries smaller packets than spec.mtu."""
    NOT_ASKED = "NotAsked"
    """NotAsked means that spec.isolation is None, so that no policy is created."""
    RESOLVED = "Resolved"
    """Resolved means that a route has a next hop."""
    ROUTES_NOT_APPLIED = "RoutesNotApplied"
    """RoutesNotApplied means that no guest receives the routes: the backend is PodNetwork,
    spec.poolRef is not set, without which guests receive no network configuration, or the next hop
    is a blackhole."""
    OFF_LINK = "OffLink"
    """OffLink means that the address of a next hop is not in spec.cidrs, where guests could not
    reach it."""
    UNRESOLVED = "Unresolved"
    """Unresolved means that routes have no next hop; status.routes says why."""
    INSTANCE_NOT_FOUND = "InstanceNotFound"
    """InstanceNotFound means that the instance of a next hop does not exist."""
    OTHER_NETWORK = "OtherNetwork"
    """OtherNetwork means that the instance of a next hop is in another network."""
    NO_ADDRESS = "NoAddress"
    """NoAddress means that the instance of a next hop has no private address yet."""
    FAMILY_MISMATCH = "FamilyMismatch"
    """FamilyMismatch means that the instance of a next hop has an address of the other family."""
    APPLIED = "Applied"
    """Applied means that a policy or an attachment was created or updated."""
    REPAIRED = "Repaired"
    """Repaired means that somebody had changed an object of the operator, and the operator reverted
    the change."""
    IN_USE = "InUse"
    """InUse means that instances or firewalls still name the Network."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""


class NextHop(
    KubernetesModel,
    rules=(
        Rule(
            "[has(self.ip), has(self.instanceRef), has(self.blackhole)]"
            ".filter(x, x).size() == 1",
            _ONE_HOP,
        ),
        Rule("!has(self.blackhole)", _NO_BLACKHOLE, field_path=".blackhole"),
    ),
):
    """NextHop is where a route sends packets."""

    ip: Ip | None = None
    """ip is an address in one of spec.cidrs."""
    instance_ref: LocalObjectReference | None = None
    """instanceRef names an Instance of this network; the route follows its private address."""
    blackhole: Blackhole | None = None
    """blackhole is not allowed in new routes, because no guest receives such a route. Stored routes
    keep it, and RoutesResolved is False while there is one. Use a rule of a Firewall instead."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = (self.ip, self.instance_ref, self.blackhole)
        if sum(each is not None for each in given) != 1:
            raise ValueError(_ONE_HOP)
        return self


class Route(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.nextHop.ip) || !isIP(self.nextHop.ip) || !isCIDR(self.destination) || "
            "ip(self.nextHop.ip).family() == cidr(self.destination).ip().family()",
            _FAMILY,
        ),
    ),
):
    """Route sends the packets for some addresses to a next hop."""

    destination: Cidr
    """destination is the address block of the route; 0.0.0.0/0 and ::/0 are the default."""
    next_hop: NextHop
    """nextHop is where packets are sent."""

    @model_validator(mode="after")
    def _check_family(self) -> Self:
        hop = self.next_hop.ip
        if hop is not None and parse_address(hop).version != parse_block(self.destination).version:
            raise ValueError(_FAMILY)
        return self


def _needs_multus(field: str, *, is_list: bool) -> Rule:
    """Return a CEL rule that allows a field only with backend Multus.

    Stored objects can keep the field.
    """
    unset = f"!has(self.{field})" + (f" || self.{field}.size() == 0" if is_list else "")
    kept = (
        f"oldSelf.hasValue() && has(oldSelf.value().{field}) && "
        f"oldSelf.value().{field} == self.{field}"
    )
    return Rule(
        f"self.backend == 'Multus' || {unset} || ({kept})",
        _NO_EFFECT.format(field),
        field_path=f".{field}",
        optional_old_self=True,
    )


def _inside(field: str) -> str:
    """Return CEL that checks whether an address lies in `self.cidrs`.

    Text that is no address passes.
    """
    return f"!isIP({field}) || self.cidrs.exists(c, isCIDR(c) && cidr(c).containsIP({field}))"


class NetworkSpec(
    KubernetesModel,
    rules=(
        Rule(
            "self.cidrs.size() == 1 || !self.cidrs.all(c, isCIDR(c)) || "
            "cidr(self.cidrs[0]).ip().family() != cidr(self.cidrs[1]).ip().family()",
            _TWO_FAMILIES,
            field_path=".cidrs",
        ),
        Rule(
            f"!has(self.gateway) || {_inside('self.gateway')}",
            f"gateway {_OFF_LINK}",
            field_path=".gateway",
        ),
        Rule(
            "!has(self.routes) || self.routes.all(r, !has(r.nextHop.ip) || "
            f"{_inside('r.nextHop.ip')})",
            f"nextHop.ip of each route {_OFF_LINK}",
            field_path=".routes",
        ),
        _needs_multus("gateway", is_list=False),
        _needs_multus("nameservers", is_list=True),
        _needs_multus("routes", is_list=True),
        Rule(
            "self.backend != 'Multus' || has(self.providerNetworkRef) || "
            "(oldSelf.hasValue() && !has(oldSelf.value().providerNetworkRef))",
            _PROVIDER,
            field_path=".providerNetworkRef",
            optional_old_self=True,
        ),
        Rule(
            "self.backend == 'Multus' || (!has(self.providerNetworkRef) && !has(self.vlan) && "
            "!has(self.mtu) && !has(self.poolRef))",
            _MULTUS_ONLY,
            field_path=".backend",
        ),
        Rule("self.backend == 'PodNetwork' || !has(self.binding)", _BINDING, field_path=".binding"),
    ),
):
    """NetworkSpec is the desired state of a Network."""

    cidrs: Annotated[list[Cidr], ListAtomic(), Field(min_length=1, max_length=2), Immutable()]
    """cidrs are the addresses of the network: one block, or one of IPv4 and one of IPv6. On backend
    PodNetwork the network plugin chooses addresses, and cidrs has no effect. Immutable."""
    gateway: Ip | None = None
    """gateway is the default router of guests, in one of cidrs. Needs backend Multus."""
    nameservers: Annotated[list[Ip], ListAtomic(), Field(max_length=4)] = []
    """nameservers are the DNS servers of guests. Needs backend Multus."""
    backend: Annotated[Backend, Immutable()] = Backend.POD_NETWORK
    """backend is what carries packets: the network of pods, or a bridge that Multus attaches.
    Defaults to PodNetwork. Immutable."""
    binding: Annotated[Binding | None, Immutable(once=True)] = None
    """binding connects guests to the network of pods. With Masquerade each guest has the same
    address, behind the address of its pod. With Bridge and Passt the guest has the address of its
    pod, which changes at each start. Needs backend PodNetwork. Defaults to Masquerade. Immutable
    once set."""
    pool_ref: Annotated[LocalObjectReference | None, Immutable(once=True)] = None
    """poolRef names the IPPool that machines receive their private address from. Without it,
    guests have no address unless something on the network provides one, such as a DHCP server.
    Needs backend Multus. Immutable once set."""
    provider_network_ref: Annotated[LocalObjectReference | None, Immutable(once=True)] = None
    """providerNetworkRef names the ProviderNetwork, an object of the cluster, whose bridge machines
    are attached to. Required for backend Multus. Immutable once set."""
    vlan: Vlan | None = None
    """vlan is the VLAN on the bridge. The ProviderNetwork must allow it. Defaults to untagged
    packets. Needs backend Multus."""
    mtu: Mtu | None = None
    """mtu is the largest packet in bytes. Defaults to the MTU of the ProviderNetwork. Needs backend
    Multus."""
    isolation: Isolation = Isolation.NAMESPACE
    """isolation defines who can reach an instance that has no firewall: pods of the namespace,
    instances of the network, or anybody. Traffic from such an instance is not restricted."""
    routes: Annotated[list[Route], ListMap("destination"), Field(max_length=64)] = []
    """routes are destinations that guests reach through another next hop than the gateway. They are
    part of the network configuration that guests receive at their next start. Needs backend Multus
    and poolRef."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        blocks = [parse_block(text) for text in self.cidrs]
        if len({block.version for block in blocks}) != len(blocks):
            raise ValueError(_TWO_FAMILIES)
        hops = [("nextHop.ip of each of routes", route.next_hop.ip) for route in self.routes]
        for field, text in (("gateway", self.gateway), *hops):
            if text is not None and not any(parse_address(text) in block for block in blocks):
                raise ValueError(f"{field} {_OFF_LINK}, unlike {text}")
        # Objects that were stored before a rule existed must remain readable: a field without
        # effect on PodNetwork, or a missing providerNetworkRef, is reported as a condition and is
        # not an error.
        beyond = (self.provider_network_ref, self.vlan, self.mtu, self.pool_ref)
        if self.backend is not Backend.MULTUS and any(each is not None for each in beyond):
            raise ValueError(_MULTUS_ONLY)
        if self.backend is not Backend.POD_NETWORK and self.binding is not None:
            raise ValueError(_BINDING)
        return self


class RouteStatus(KubernetesModel):
    """RouteStatus is the state of one route."""

    destination: Annotated[str, Field(max_length=43)]
    """destination is the destination of the route in the spec."""
    next_hop: Annotated[str, Field(max_length=39)] = ""
    """nextHop is the address that packets go to; empty if the route is not resolved."""
    reason: NetworkReason
    """reason is Resolved, or why there is no next hop."""
    message: Annotated[str, Field(max_length=1_024)] = ""
    """message describes what is missing."""


class NetworkStatus(ObjectStatus):
    """NetworkStatus is the observed state of a Network."""

    conditions: Conditions = []
    """conditions report whether instances can start, and why the network is not Ready."""
    mtu: Mtu | None = None
    """mtu is the largest packet in bytes that guests may send, if the spec or the ProviderNetwork
    defines it."""
    nad_ref: ObjectReference | None = None
    """nadRef names the NetworkAttachmentDefinition of backend Multus."""
    policy_refs: Annotated[list[ObjectReference], ListMap("name"), Field(max_length=4)] = []
    """policyRefs name the NetworkPolicies of the network itself."""
    routes: Annotated[list[RouteStatus], ListMap("destination"), Field(max_length=64)] = []
    """routes are the resolved routes, or the reasons why they cannot be resolved."""
    used_by_count: Count = 0
    """usedByCount is the number of instances and firewalls that name the network."""
    used_by: Users = []
    """usedBy lists the first 20 of these instances."""


class Network(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="networks",
    short_names=("net",),
    categories=("slipway",),
    columns=(
        PrinterColumn("CIDRs", "string", ".spec.cidrs[*]"),
        PrinterColumn("Backend", "string", ".spec.backend"),
        PrinterColumn("Isolation", "string", ".spec.isolation"),
        PrinterColumn("Users", "integer", ".status.usedByCount"),
        *READY_COLUMNS,
        PrinterColumn("Provider", "string", ".spec.providerNetworkRef.name", priority=1),
        PrinterColumn("VLAN", "integer", ".spec.vlan", priority=1),
        PrinterColumn("Gateway", "string", ".spec.gateway", priority=1),
        PrinterColumn("Used-By", "string", ".status.usedBy[*]", priority=1),
        AGE,
    ),
    conditions=NetworkCondition,
    reasons=NetworkReason,
):
    """Network defines the addresses and routes of instances, and who can reach the instances."""

    spec: NetworkSpec
    """spec is the desired state of the network."""
    status: NetworkStatus | None = None
    """status is the observed state of the network."""


NETWORK: Final[Kind] = kind_of(Network)
"""The kind as a value, for the client and the generator."""
