"""IPPool v1alpha1: addresses that an administrator provides, and how they are allocated."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from libs.common.crd import (
    AGE,
    READY_COLUMN,
    Conditions,
    Count,
    CustomResource,
    Immutable,
    Int32,
    KubernetesModel,
    LabelSelector,
    ListAtomic,
    ListSet,
    ObjectStatus,
    PrinterColumn,
    Rule,
    Timestamp,
    kind_of,
)
from operators.ipam.addresses import parse_range
from operators.ipam.api.v1alpha1.fields import GROUP, Address, Cidr, Family, Realm

_BAD_RANGE: Final = (
    "must be an address, a CIDR or a range (203.0.113.7, 203.0.113.0/26, "
    "203.0.113.10-203.0.113.20); the first address of a range must not be after its last, and a "
    "CIDR must be written with its network address"
)
_NUMBER: Final = (
    "int({0}.split('.')[0]) * 16777216 + int({0}.split('.')[1]) * 65536 + "
    "int({0}.split('.')[2]) * 256 + int({0}.split('.')[3])"
)
# CEL cannot compare the ends of an IPv6 range; the condition Ready reports a wrong order.
_RANGE_RULE: Final = (
    "self.contains('-') ? self.split('-').size() == 2 && "
    "self.split('-').all(p, isIP(p) && ip.isCanonical(p)) && "
    "(self.split('-')[0].contains(':') ? self.split('-')[1].contains(':') : "
    "!self.split('-')[1].contains(':') && "
    f"{_NUMBER.format("self.split('-')[0]")} <= {_NUMBER.format("self.split('-')[1]")}) "
    ": isIP(self) || (isCIDR(self) && cidr(self) == cidr(self).masked())"
)


class Strategy(StrEnum):
    """Strategy defines which free address is allocated next."""

    ROUND_ROBIN = "RoundRobin"
    LOWEST_FREE = "LowestFree"
    RANDOM = "Random"


class ReservedAddresses(StrEnum):
    """ReservedAddresses defines whether the first and last address of a network are allocated."""

    SKIP = "Skip"
    USE = "Use"


class PoolMode(StrEnum):
    """PoolMode defines whether a pool allocates addresses."""

    ENABLED = "Enabled"
    DRAINING = "Draining"


class AddressTargets(StrEnum):
    """AddressTargets defines whether claims can route an address to any IP of their choice."""

    DENY = "Deny"
    ALLOW = "Allow"


class PoolCondition(StrEnum):
    """Conditions of an IPPool."""

    READY = "Ready"
    """Ready is True when the pool serves claims, even if all of its addresses are in use."""
    EXHAUSTED = "Exhausted"
    """Exhausted is True when claims wait because no address is free."""
    OVERLAPPING = "Overlapping"
    """Overlapping is True when another pool of the realm contains some of the addresses as well. No
    address is allocated twice; free addresses count in both pools."""
    OUT_OF_RANGE = "OutOfRange"
    """OutOfRange is True when spec.addresses no longer contains some allocated addresses. Their
    claims keep them. They do not return to the pool when they are released."""
    TERMINATING = "Terminating"
    """Terminating is True while a deleted pool waits for its addresses to be released."""


class PoolReason(StrEnum):
    """Reasons of the conditions and events of an IPPool."""

    SERVING = "Serving"
    """Serving means that the pool serves claims."""
    DRAINING = "Draining"
    """Draining means that the pool allocates no addresses because of spec.allocation."""
    RESTORING = "Restoring"
    """Restoring means that the pool was restored from a backup a moment ago, and waits for the
    restored IPAllocations before it allocates other addresses."""
    NO_ADDRESSES = "NoAddresses"
    """NoAddresses means that the exclusions leave no address."""
    NONE_FREE = "NoneFree"
    """NoneFree means that claims wait for an address to be released."""
    SOME_FREE = "SomeFree"
    """SomeFree means that no claim waits for an address."""
    SHARED = "Shared"
    """Shared means that another pool of the realm contains some of the addresses as well."""
    DISJOINT = "Disjoint"
    """Disjoint means that no other pool of the realm contains any of the addresses."""
    ADDRESSES_OUTSIDE = "AddressesOutside"
    """AddressesOutside means that spec.addresses no longer contains all addresses in use."""
    ALL_INSIDE = "AllInside"
    """AllInside means that all addresses in use are in the pool."""
    ADDRESSES_IN_USE = "AddressesInUse"
    """AddressesInUse means that claims have addresses of a pool that was deleted."""
    ALLOCATED = "Allocated"
    """Allocated means that addresses were allocated to claims."""
    ALLOCATION_FAILED = "AllocationFailed"
    """AllocationFailed means that the API server refused an entry of the ledger."""
    INVALID_SPEC = "InvalidSpec"
    """InvalidSpec means that the spec cannot be read; the message names the field."""


# The operator checks these; rules in CEL for each address would exceed the budget of the CRD.
_UNROUTABLE: Final = (
    *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"),
    *("::/127", "fe80::/10", "ff00::/8", "::ffff:0:0/96"),
)
_NO_HOST: Final = (
    "must not contain unspecified, loopback, link-local, multicast, broadcast or IPv4-mapped "
    "addresses: no client can reach them"
)


def _check_range(value: str) -> str:
    try:
        first, last = parse_range(value)
    except ValueError:
        raise ValueError(_BAD_RANGE) from None
    for block in map(ipaddress.ip_network, _UNROUTABLE):
        low, high = int(block.network_address), int(block.broadcast_address)
        if (block.version == 6) == (":" in value) and first <= high and low <= last:
            raise ValueError(_NO_HOST)
    return value


Range = Annotated[
    str,
    Field(min_length=2, max_length=79),
    AfterValidator(_check_range),
    Rule(_RANGE_RULE, _BAD_RANGE),
]
"""Addresses as people write them: a single address, a CIDR, or the first and last address of a
range."""

BLOCKS_LIMIT: Final = 1024
"""Maximum number of CIDRs in the status of a pool, so that the admission policy stays cheap."""

Amount = Annotated[str, Field(max_length=40, pattern=r"^[0-9]+$")]
"""A number of addresses, as text: the size of a /64 does not fit into an integer."""

_FAMILY: Final = "self.{0}.all(a, a.contains(':') == (self.family == 'IPv6'))"


class IPPoolSpec(
    KubernetesModel,
    rules=(
        Rule(
            _FAMILY.format("addresses"),
            "addresses must all be of spec.family",
            field_path=".addresses",
        ),
        Rule(
            f"!has(self.excluded) || {_FAMILY.format('excluded')}",
            "excluded must all be of spec.family",
            field_path=".excluded",
        ),
        Rule(
            "!has(self.gateway) || self.gateway.contains(':') == (self.family == 'IPv6')",
            "gateway must be of spec.family",
            field_path=".gateway",
        ),
        Rule(
            "!has(self.prefix) || self.family == 'IPv6' || self.prefix <= 32",
            "prefix must be at most 32 for family IPv4",
            field_path=".prefix",
        ),
    ),
):
    """IPPoolSpec is the desired state of a pool."""

    realm: Annotated[Realm, Immutable()] = "public"
    """realm is the space in which each address is unique; pools of a realm can overlap.
    Immutable."""
    family: Annotated[Family, Immutable()]
    """family is IPv4 or IPv6. Immutable."""
    addresses: Annotated[list[Range], ListSet(), Field(min_length=1, max_length=64)]
    """addresses are the addresses of the pool: single addresses, CIDRs and ranges."""
    excluded: Annotated[list[Range], ListSet(), Field(max_length=64)] = []
    """excluded are addresses that are never allocated."""
    gateway: Address | None = None
    """gateway is the router of the network. It is never allocated."""
    prefix: Annotated[Int32 | None, Field(ge=0, le=128)] = None
    """prefix is the length of the prefix of the network in bits, such as 24. IPAddresses of Cluster
    API contain it. Claims of Cluster API are served only if it is set."""
    reserved_addresses: ReservedAddresses = ReservedAddresses.SKIP
    """reservedAddresses is Skip to leave out the first and last address of each CIDR, or Use to
    allocate them."""
    strategy: Strategy = Strategy.ROUND_ROBIN
    """strategy is RoundRobin (after the address allocated last), LowestFree or Random."""
    reuse_grace_seconds: Annotated[Int32, Field(ge=0, le=31_536_000)] = 300
    """reuseGraceSeconds is how long a released address stays in quarantine before another claim can
    get it."""
    allowed_namespaces: LabelSelector | None = None
    """allowedNamespaces selects the namespaces whose claims are served. Defaults to all
    namespaces."""
    quota_per_namespace: Annotated[Int32 | None, Field(ge=1, le=1_000_000)] = None
    """quotaPerNamespace is the maximum number of addresses that the claims of one namespace can
    have from this pool. Addresses in quarantine count. A namespace that reaches the quota reuses
    its own addresses in quarantine. Claims keep their addresses if it is lowered. Defaults to no
    limit."""
    max_priority: Annotated[Int32, Field(ge=-1000, le=1000)] = 0
    """maxPriority is the highest priority that counts in this pool: a claim with a higher
    spec.priority waits as if it had this one. Defaults to 0."""
    allocation: PoolMode = PoolMode.ENABLED
    """allocation is Enabled, or Draining to allocate no more addresses."""
    address_targets: AddressTargets = AddressTargets.DENY
    """addressTargets is Allow if claims can have a plain IP as their target, or Deny. Such a target
    can be outside their namespace."""


class PoolCapacity(KubernetesModel):
    """PoolCapacity counts the addresses of a pool."""

    total: Amount = "0"
    """total is the number of addresses that can be allocated, in use or not."""
    free: Amount = "0"
    """free is the number of free addresses."""
    allocated: Count = 0
    """allocated is the number of allocated addresses."""
    quarantined: Count = 0
    """quarantined is the number of released addresses in quarantine."""
    out_of_range: Count = 0
    """outOfRange is the number of allocated addresses that spec.addresses no longer contains."""
    waiting: Count = 0
    """waiting is the number of claims that want an address and have none."""


class IPPoolStatus(ObjectStatus):
    """IPPoolStatus is the observed state of a pool."""

    conditions: Conditions = []
    """conditions report whether the pool allocates addresses, and why not."""
    capacity: PoolCapacity | None = None
    """capacity counts the addresses."""
    last_address: Address | None = None
    """lastAddress is the address that was allocated last. RoundRobin continues after it."""
    blocks: Annotated[list[Cidr], ListAtomic(), Field(max_length=BLOCKS_LIMIT)] = []
    """blocks are the addresses that only claims can have, as CIDRs: spec.addresses without
    spec.excluded, and addresses outside of spec.addresses that are still in use. The admission
    policy of the chart keeps other Services from having them. More than 1024 blocks are merged, so
    that they contain addresses next to these."""
    next_release: Timestamp | None = None
    """nextRelease is the time at which the next address leaves quarantine."""


class IPPool(
    CustomResource,
    group=GROUP,
    version="v1alpha1",
    plural="ippools",
    scope="Cluster",
    short_names=("ipp",),
    categories=("slipway",),
    columns=(
        PrinterColumn("Family", "string", ".spec.family"),
        PrinterColumn("Total", "string", ".status.capacity.total"),
        PrinterColumn("Free", "string", ".status.capacity.free"),
        PrinterColumn("Allocated", "integer", ".status.capacity.allocated"),
        PrinterColumn("Waiting", "integer", ".status.capacity.waiting"),
        READY_COLUMN,
        PrinterColumn("Addresses", "string", ".spec.addresses", priority=1),
        PrinterColumn("Realm", "string", ".spec.realm", priority=1),
        PrinterColumn("Quarantined", "integer", ".status.capacity.quarantined", priority=1),
        PrinterColumn("Out-Of-Range", "integer", ".status.capacity.outOfRange", priority=1),
        AGE,
    ),
    conditions=PoolCondition,
    reasons=PoolReason,
):
    """IPPool is a set of addresses that are allocated to claims."""

    spec: IPPoolSpec
    """spec is the desired state of the pool."""
    status: IPPoolStatus | None = None
    """status is the observed state of the pool."""


IP_POOL = kind_of(IPPool)
"""The kind IPPool."""
