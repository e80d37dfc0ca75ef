"""Firewall v1alpha1: ordered rules for connections to and from instances."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from libs.common.crd import (
    AGE,
    Conditions,
    Count,
    CustomResource,
    DnsLabel,
    DnsSubdomain,
    Immutable,
    KubernetesModel,
    ListAtomic,
    ListMap,
    LocalObjectReference,
    ObjectReference,
    ObjectStatus,
    PrinterColumn,
    Rule,
    ShortText,
    Uid,
    kind_of,
)
from libs.common.crd.markers import INT_OR_STRING, Verbatim
from libs.common.kinds import Kind
from operators.network.api.v1alpha1.fields import GROUP, READY_COLUMNS, Cidr, Users
from operators.network.api.v1alpha1.peers import PEERS_LIMIT, FirewallPeer

MEMBERS_LIMIT: Final = 1_000
"""Maximum number of instances of one firewall: each is an entry in its policy and in its status."""
LAST_PORT: Final = 65_535
"""Highest port."""

_RANGE: Final = re.compile(r"^([1-9][0-9]{0,4})(-([1-9][0-9]{0,4}))?$")
_BAD_PORTS: Final = 'must be a port or a range of ports from 1 to 65535: 22, "8000-8100"'
_DENY_PEERS: Final = "peers need action Allow"
_MANY_PEERS: Final = f"all rules together must have at most {PEERS_LIMIT} peers"
_PORTS_NEED: Final = "ports need protocol TCP, UDP or SCTP"


class Direction(StrEnum):
    """Direction is the direction of a connection, as the instance sees it."""

    INGRESS = "Ingress"
    EGRESS = "Egress"


class Action(StrEnum):
    """Action is whether a connection is allowed."""

    ALLOW = "Allow"
    DENY = "Deny"


class Protocol(StrEnum):
    """Protocol is the protocol to which a rule applies."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"
    ICMP = "ICMP"
    ALL = "ALL"


class FirewallCondition(StrEnum):
    """Conditions of a Firewall."""

    READY = "Ready"
    """Ready is True when the policy covers every instance that names the firewall.

    Traffic whose rule the policy cannot express is denied; the condition Enforced reports such
    rules."""
    ENFORCED = "Enforced"
    """Enforced is True when the backend can express every rule; status.unenforceable lists the
    rules that it cannot express. It is Unknown for a Network of backend Multus, unless the setting
    multiNetworkPolicy says that the cluster enforces MultiNetworkPolicies."""
    TERMINATING = "Terminating"
    """Terminating is True while the Firewall is being deleted; the reason says what the deletion
    waits for."""


class FirewallReason(StrEnum):
    """Reasons of the conditions, rules and events of a Firewall."""

    IN_FORCE = "InForce"
    """InForce means that every rule is enforced."""
    POLICY_MISSING = "PolicyMissing"
    """PolicyMissing means that the NetworkPolicy does not exist or is not up to date."""
    NAME_TAKEN = "NameTaken"
    """NameTaken means that an object that the operator does not own has a name that it needs."""
    WRITE_REFUSED = "WriteRefused"
    """WriteRefused means that the API server refused the policy; the message says why."""
    NETWORK_NOT_FOUND = "NetworkNotFound"
    """NetworkNotFound means that the Network that spec.networkRef names does not exist; the rules
    are enforced nevertheless."""
    TOO_MANY_INSTANCES = "TooManyInstances"
    """TooManyInstances means that more instances name the firewall than one policy can hold."""
    OPEN_ELSEWHERE = "OpenElsewhere"
    """OpenElsewhere means that the policy of another firewall still allows traffic to an instance
    that changed its firewall."""
    OTHER_NETWORK = "OtherNetwork"
    """OtherNetwork means that an instance is on a network to which the policy does not apply,
    because its backend is not the backend of spec.networkRef; use a firewall of that network."""
    EXPRESSIBLE = "Expressible"
    """Expressible means that the backend can express every rule."""
    IMPLEMENTATION_UNKNOWN = "ImplementationUnknown"
    """ImplementationUnknown means that the operator cannot detect whether the cluster enforces
    MultiNetworkPolicies on the interfaces of guests; see the setting multiNetworkPolicy."""
    UNENFORCEABLE = "Unenforceable"
    """Unenforceable means that the backend cannot express some rules; status.unenforceable lists
    them."""
    PROTOCOL_UNDEFINED = "ProtocolUndefined"
    """ProtocolUndefined means that NetworkPolicy does not support the protocol of a rule."""
    NOT_WHOLLY_EXPRESSIBLE = "NotWhollyExpressible"
    """NotWhollyExpressible means that a rule is enforced for TCP, UDP and SCTP only."""
    SECONDARY_INTERFACE = "SecondaryInterface"
    """SecondaryInterface means that Multus attaches the network, and NetworkPolicies do not apply
    to its interfaces."""
    PROTECTED = "Protected"
    """Protected means that the rule allows packets to addresses of the setting protectedCidrs;
    packets to these are denied nevertheless."""
    TOO_LARGE = "TooLarge"
    """TooLarge means that the rule would make the policy too large; the traffic that it allows is
    denied."""
    APPLIED = "Applied"
    """Applied means that the policy was created or updated."""
    REPAIRED = "Repaired"
    """Repaired means that somebody had changed an object of the operator, and the operator reverted
    the change."""
    IN_USE = "InUse"
    """InUse means that instances still name the Firewall."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""


def parse_ports(value: int | str) -> tuple[int, int]:
    """Parse a port or a range of ports into its first and last port.

    Raises:
        ValueError: Neither of them.
    """
    match = None if isinstance(value, bool) else _RANGE.fullmatch(str(value))
    if match is None:
        raise ValueError(_BAD_PORTS)
    first, last = int(match[1]), int(match[3] or match[1])
    if not 1 <= first <= last <= LAST_PORT:
        raise ValueError(_BAD_PORTS)
    return first, last


def _check_ports(value: Any) -> int | str:
    if not isinstance(value, int | str):
        raise ValueError(_BAD_PORTS)  # noqa: TRY004 pydantic reports these
    parse_ports(value)
    return value


Ports = Annotated[
    int | str,
    BeforeValidator(_check_ports),
    Verbatim(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            INT_OR_STRING: True,
            "maxLength": 11,
            "pattern": _RANGE.pattern,
        }
    ),
    Rule(
        "type(self) == int ? int(self) >= 1 && int(self) <= 65535 : "
        "string(self).split('-').all(p, int(p) <= 65535) && "
        "int(string(self).split('-')[0]) <= int(string(self).split('-', 2)"
        "[string(self).contains('-') ? 1 : 0])",
        _BAD_PORTS,
    ),
]
"""A port, or a range of ports as text."""


class FirewallRule(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.ports) || self.ports.size() == 0 || self.protocol in ['TCP', 'UDP', 'SCTP']",
            _PORTS_NEED,
            field_path=".ports",
        ),
        Rule(
            "!has(self.peers) || self.peers.size() == 0 || self.action == 'Allow'",
            _DENY_PEERS,
            field_path=".peers",
        ),
    ),
):
    """FirewallRule allows or denies connections."""

    name: DnsLabel
    """name is the name of the rule, unique in the firewall."""
    direction: Direction = Direction.INGRESS
    """direction is Ingress for connections to an instance, or Egress for connections from it."""
    action: Action = Action.ALLOW
    """action is Allow or Deny."""
    protocol: Protocol
    """protocol is TCP, UDP, SCTP, ICMP, or ALL for all protocols."""
    ports: Annotated[list[Ports], ListAtomic(), Field(max_length=16)] = []
    """ports are destination ports and port ranges. Not allowed with ICMP and ALL. Defaults to all
    ports."""
    cidrs: Annotated[list[Cidr], ListAtomic(), Field(max_length=64)] = []
    """cidrs are the addresses at the other end. Defaults to all addresses of both families, unless
    peers are given. Many network plugins do not apply cidrs to pods; use peers to select
    machines."""
    peers: Annotated[list[FirewallPeer], ListAtomic(), Field(max_length=16)] = []
    """peers are machines and pods at the other end, in addition to cidrs. A rule with action Deny
    that has cidrs does not apply to them. Needs action Allow."""
    priority: Annotated[int, Field(ge=0, le=65_535)] = 1_000
    """priority orders the rules: the lowest first; of one priority, Deny first, then by name."""
    description: ShortText = ""
    """description describes the rule."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.ports and self.protocol in (Protocol.ICMP, Protocol.ALL):
            raise ValueError(_PORTS_NEED)
        if self.peers and self.action is not Action.ALLOW:
            raise ValueError(_DENY_PEERS)
        return self


class FirewallSpec(
    KubernetesModel,
    rules=(
        Rule(
            "!has(self.rules) || self.rules.map(r, has(r.peers) ? r.peers.size() : 0).sum() <= "
            f"{PEERS_LIMIT}",
            _MANY_PEERS,
            field_path=".rules",
        ),
    ),
):
    """FirewallSpec is the desired state of a Firewall."""

    network_ref: Annotated[LocalObjectReference, Immutable()]
    """networkRef names the Network of the firewall. Immutable."""
    default_ingress: Action = Action.DENY
    """defaultIngress is the action for connections to an instance that match no rule."""
    default_egress: Action = Action.ALLOW
    """defaultEgress is the action for connections from an instance that match no rule."""
    rules: Annotated[list[FirewallRule], ListMap("name"), Field(max_length=256)] = []
    """rules are evaluated by priority; the first rule that matches a connection decides."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(len(rule.peers) for rule in self.rules) > PEERS_LIMIT:
            raise ValueError(_MANY_PEERS)
        return self


class Member(KubernetesModel):
    """Member is an instance that the policy covers."""

    name: DnsSubdomain
    """name is the name of the Instance."""
    uid: Uid
    """uid is the UID of the Instance, which its pods carry as a label."""


class UnenforceableRule(KubernetesModel):
    """UnenforceableRule is a rule that is not enforced, or only in part."""

    rule: Annotated[str, Field(max_length=63)]
    """rule is the name of the rule, or the field of a default."""
    reason: FirewallReason
    """reason is the reason why the backend cannot express the rule."""
    message: ShortText = ""
    """message describes what applies instead."""


class FirewallStatus(ObjectStatus):
    """FirewallStatus is the observed state of a Firewall."""

    conditions: Conditions = []
    """conditions report whether the rules are enforced."""
    backend: Annotated[str, Field(max_length=63)] = ""
    """backend is the kind of policy that enforces the rules."""
    policy_ref: ObjectReference | None = None
    """policyRef names the NetworkPolicy."""
    applied_hash: Annotated[str, Field(max_length=64)] = ""
    """appliedHash is a hash of the rules that the policy expresses; it changes only when the rules
    change."""
    instances: Annotated[list[Member], ListMap("uid"), Field(max_length=MEMBERS_LIMIT)] = []
    """instances are the Instances that the policy covers. A machine starts only after it is
    listed."""
    unenforceable: Annotated[
        list[UnenforceableRule], ListMap("rule", "reason"), Field(max_length=600)
    ] = []
    """unenforceable are the rules that the backend cannot express, and what applies instead."""
    used_by_count: Count = 0
    """usedByCount is the number of instances that name the firewall."""
    used_by: Users = []
    """usedBy lists the first 20 of these instances."""


class Firewall(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="firewalls",
    short_names=("fw",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Network", "string", ".spec.networkRef.name"),
        PrinterColumn("Ingress", "string", ".spec.defaultIngress"),
        PrinterColumn("Egress", "string", ".spec.defaultEgress"),
        PrinterColumn("Instances", "integer", ".status.usedByCount"),
        PrinterColumn("Enforced", "string", '.status.conditions[?(@.type=="Enforced")].status'),
        *READY_COLUMNS,
        PrinterColumn("Used-By", "string", ".status.usedBy[*]", priority=1),
        AGE,
    ),
    conditions=FirewallCondition,
    reasons=FirewallReason,
):
    """Firewall is a list of rules, enforced by a NetworkPolicy, for the instances that name it."""

    spec: FirewallSpec
    """spec is the desired state of the firewall."""
    status: FirewallStatus | None = None
    """status is the observed state of the firewall."""


FIREWALL: Final[Kind] = kind_of(Firewall)
"""The kind as a value, for the client and the generator."""
