"""Compiles the rules of a firewall to the rules of a NetworkPolicy. Pure.

A NetworkPolicy can only allow traffic, and the rules of all policies are combined. So the ordered
allow and deny rules of a firewall cannot be translated one by one. Instead, the compiler computes
the traffic that the firewall allows, and expresses it as allow rules, each with addresses and
ports. Traffic that the API cannot express is never allowed, and is reported:

* The API has ports for TCP, UDP and SCTP only. An allow rule without ports allows packets of all
  protocols, so the compiler writes one only if the firewall allows all packets.
* The API does not define ICMP, so the network plugin decides about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Final

from operators.network.api.v1alpha1.firewall import (
    Direction,
    FirewallReason,
    FirewallSpec,
    Protocol,
)
from operators.network.firewall.addresses import EVERYWHERE, NOWHERE, AddressSet, Span, join
from operators.network.firewall.cover import Block, plan_cover
from operators.network.firewall.peers import CLUSTER_DNS, NEIGHBORS, Peer
from operators.network.firewall.traffic import (
    ALL_PORTS,
    PORTED,
    AddressRange,
    PacketRule,
    PortClass,
    Ruleset,
    Traffic,
    build_peer_ruleset,
    build_ruleset,
    estimate_work,
    find_traffic,
    list_peers,
)

ENTRIES_LIMIT: Final = 2_500
"""Maximum number of allow rules, blocks, exceptions and ports of one direction, together. etcd
could store four times as many."""
WORK_LIMIT: Final = 5_000_000
"""Maximum number of pairs of an address block and a class of ports in one direction. Without it, a
firewall that the API server accepts could take the operator 16 s at each change."""
_DROPPED: Final = "the policy would be too large; the traffic that this rule allows stays blocked"
DEFAULT_FIELDS: Final = {
    Direction.INGRESS: "defaultIngress",
    Direction.EGRESS: "defaultEgress",
}
"""Field with the action for packets that match no rule."""


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports of one protocol.

    Attributes:
        ports: First and last port; None for all.
    """

    protocol: Protocol
    ports: Span | None = None


_DNS_PORTS: Final = (PortRange(Protocol.UDP, (53, 53)), PortRange(Protocol.TCP, (53, 53)))


@dataclass(frozen=True, slots=True)
class AllowRule:
    """A rule that allows some packets.

    Attributes:
        blocks: Addresses at the other end; empty for all addresses.
        ports: Destination ports; empty for all packets of any protocol.
        peers: Pods at the other end, instead of blocks; empty for a rule about addresses.
    """

    blocks: tuple[Block, ...] = ()
    ports: tuple[PortRange, ...] = ()
    peers: tuple[Peer, ...] = ()

    @property
    def cost(self) -> int:
        """Number of its entries in a policy."""
        blocks = sum(block.cost for block in self.blocks)
        return 1 + len(self.ports) + len(self.peers) + blocks


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A rule that the backend expresses only partly or not at all.

    Attributes:
        rule: Name of the rule, or field of a default.
        reason: Reason why the backend cannot express it.
        message: Description of what applies instead.
    """

    rule: str
    reason: FirewallReason
    message: str


@dataclass(frozen=True, slots=True)
class CompiledFirewall:
    """A firewall as a NetworkPolicy can express it.

    Attributes:
        ingress: Rules that allow incoming packets.
        egress: Rules that allow outgoing packets.
        shortfalls: Rules that could not be expressed; their traffic is blocked.
    """

    ingress: tuple[AllowRule, ...]
    egress: tuple[AllowRule, ...]
    shortfalls: tuple[Shortfall, ...]


def compile_firewall(
    spec: FirewallSpec, *, limit: int = ENTRIES_LIMIT, protected: AddressSet = NOWHERE
) -> CompiledFirewall:
    """Compile the rules of a firewall; the result is exact except for its `shortfalls`.

    Args:
        spec: The rules.
        limit: Maximum number of entries of one direction.
        protected: Addresses to which no packet may be sent.
    """
    found: dict[Direction, tuple[AllowRule, ...]] = {}
    shortfalls: list[Shortfall] = []
    for direction in Direction:
        closed = protected if direction is Direction.EGRESS else NOWHERE
        allow_rules, short = _compile(build_ruleset(spec, direction), limit, closed)
        groups = tuple(
            (peer, build_peer_ruleset(spec, direction, peer))
            for peer in list_peers(spec, direction)
        )
        by_peer, peers_short = _compile_peers(groups, limit)
        found[direction] = (*allow_rules, *by_peer)
        shortfalls += [*short, *peers_short]
    reported = {(each.rule, each.reason): each for each in reversed(shortfalls)}
    return CompiledFirewall(
        found[Direction.INGRESS], found[Direction.EGRESS], tuple(reversed(reported.values()))
    )


type _Part = tuple[tuple[AllowRule, ...], tuple[Shortfall, ...]]


def compile_open_egress(protected: AddressSet) -> tuple[AllowRule, ...]:
    """Compile the egress of an instance without firewall: everything except protected addresses."""
    allow_rules, _ = _compile(Ruleset(Direction.EGRESS, (), allows=True), ENTRIES_LIMIT, protected)
    return allow_rules


@lru_cache(maxsize=1024)
def _compile(ruleset: Ruleset, limit: int, protected: AddressSet) -> _Part:
    """Compile one direction; cached, because each reconcile of a firewall needs it."""
    kept = ruleset
    if not _fits(_protect(ruleset, protected), limit):
        kept = _shrink(ruleset, lambda each: _fits(_protect(each, protected), limit))
    if estimate_work(kept) > WORK_LIMIT:
        # Only rules that deny are left, and too many of them, so nothing is allowed.
        return (), tuple(_list_dropped(ruleset, kept))
    traffic = find_traffic(_protect(kept, protected))
    shortfalls = [*_list_dropped(ruleset, kept), *_find_shortfalls(kept, traffic)]
    if protected == NOWHERE:
        return tuple(_find_allow_rules(traffic)), tuple(shortfalls)
    shortfalls += _find_protected(kept, protected)
    return (*_find_allow_rules(traffic), *_keep_reachable(kept)), tuple(shortfalls)


@lru_cache(maxsize=1024)
def _compile_peers(groups: tuple[tuple[Peer, Ruleset], ...], limit: int) -> _Part:
    """Compile the peers of one direction; peers with equal rules share an allow rule."""
    work = WORK_LIMIT
    sharing: dict[tuple[AllowRule, ...], list[Peer]] = {}
    shortfalls: list[Shortfall] = []
    for peer, ruleset in groups:
        work -= estimate_work(ruleset)
        traffic = find_traffic(ruleset) if work >= 0 else Traffic((), ())
        allow_rules = tuple(_find_allow_rules(traffic))
        limit -= sum(allow_rule.cost for allow_rule in allow_rules)
        if limit < 0 or work < 0:
            names = (rule.name for rule in ruleset.rules if rule.allows)
            shortfalls += [Shortfall(name, FirewallReason.TOO_LARGE, _DROPPED) for name in names]
            continue
        sharing.setdefault(allow_rules, []).append(peer)
        shortfalls += _find_shortfalls(ruleset, traffic)
    found = tuple(
        replace(allow_rule, peers=tuple(peers))
        for allow_rules, peers in sharing.items()
        for allow_rule in allow_rules
    )
    return found, tuple(shortfalls)


# Addresses that administrators protect.


def _protect(ruleset: Ruleset, protected: AddressSet) -> Ruleset:
    """Insert a first rule that denies all packets to the protected addresses."""
    if protected == NOWHERE:
        return ruleset
    first = PacketRule("", False, Protocol.ALL, (), protected)
    return replace(ruleset, rules=(first, *ruleset.rules))


def _keep_reachable(ruleset: Ruleset) -> Iterable[AllowRule]:
    """Yield allow rules for pods that must stay reachable although addresses are protected.

    These are the pods of the same namespace and the DNS service of the cluster, as far as the
    ruleset allows traffic to all addresses. Their addresses can be among the protected ones, and
    some network plugins do not apply blocks to pods, so they are allowed by pod selectors.
    """
    traffic = find_traffic(ruleset)
    everywhere = (1 << len(traffic.port_classes)) - 1
    for zone in traffic.zones:
        everywhere &= zone.allowed
    common = Traffic(traffic.port_classes, (AddressRange(EVERYWHERE, everywhere, ()),))
    for allow_rule in _find_allow_rules(common):
        yield replace(allow_rule, peers=(NEIGHBORS,))
        lookups = tuple(port for port in _DNS_PORTS if _holds(allow_rule, port))
        if lookups:
            yield AllowRule(ports=lookups, peers=(CLUSTER_DNS,))


def _holds(allow_rule: AllowRule, wanted: PortRange) -> bool:
    """Return whether an allow rule contains the given ports."""
    first, last = wanted.ports or ALL_PORTS
    return not allow_rule.ports or any(
        each.protocol is wanted.protocol
        and (each.ports is None or (each.ports[0] <= first and last <= each.ports[1]))
        for each in allow_rule.ports
    )


def _find_protected(ruleset: Ruleset, protected: AddressSet) -> Iterable[Shortfall]:
    message = "the administrator protects some of its cidrs; they stay blocked"
    for rule in ruleset.rules:
        if rule.allows and rule.addresses != EVERYWHERE and rule.addresses.meets(protected):
            yield Shortfall(rule.name, FirewallReason.PROTECTED, message)


# Allowed traffic as allow rules.


def _find_allow_rules(traffic: Traffic) -> Iterable[AllowRule]:
    everything = (1 << len(traffic.port_classes)) - 1
    free = _union(zone.addresses for zone in traffic.zones if zone.allowed == everything)
    if free != AddressSet():
        yield AllowRule(_cover(free, AddressSet()))
    # Port classes that are allowed for the same addresses share an allow rule.
    sharing: dict[AddressSet, list[PortClass]] = {}
    for number, port_class in enumerate(traffic.port_classes):
        if port_class.protocol in PORTED and port_class.ports != (0, 1):
            held = _union(
                zone.addresses
                for zone in traffic.zones
                if zone.allowed >> number & 1 and zone.allowed != everything
            )
            sharing.setdefault(held, []).append(port_class)
    sharing.pop(AddressSet(), None)
    for held, port_classes in sharing.items():
        yield AllowRule(_cover(held, free), tuple(_find_ports(port_classes)))


def _union(sets: Iterable[AddressSet]) -> AddressSet:
    parts = list(sets)
    v4 = join(span for part in parts for span in part.v4)
    v6 = join(span for part in parts for span in part.v6)
    return AddressSet(v4, v6)


def _cover(held: AddressSet, free: AddressSet) -> tuple[Block, ...]:
    """Cover addresses by blocks; an empty result means all addresses."""
    v4, v6 = plan_cover(held.v4, free.v4, 4), plan_cover(held.v6, free.v6, 6)
    everywhere = [Block("0.0.0.0/0")], [Block("::/0")]
    return () if (v4, v6) == everywhere else (*v4, *v6)


def _find_ports(port_classes: Iterable[PortClass]) -> Iterable[PortRange]:
    spans: dict[Protocol, list[Span]] = {}
    for port_class in port_classes:
        spans.setdefault(port_class.protocol, []).append(port_class.ports)
    for protocol, parts in spans.items():
        for first, end in join(parts):
            # A policy cannot name port 0; it is allowed together with all other ports or not at
            # all.
            whole = (first, end) == ALL_PORTS
            yield PortRange(protocol, None if whole else (max(first, 1), end - 1))


# Traffic that a policy cannot express.


def _find_shortfalls(ruleset: Ruleset, traffic: Traffic) -> Iterable[Shortfall]:
    for rule in ruleset.rules:
        if rule.protocol is Protocol.ICMP:
            yield _describe_undefined(rule)
    everything = (1 << len(traffic.port_classes)) - 1
    silent = [
        number
        for number, port_class in enumerate(traffic.port_classes)
        if port_class.protocol not in PORTED
    ]
    icmp = {rule.name for rule in ruleset.rules if rule.protocol is Protocol.ICMP}
    closed = {
        decider
        for zone in traffic.zones
        if zone.allowed != everything
        for number, decider in zip(silent, zone.deciders, strict=True)
        if zone.allowed >> number & 1
    }
    for name in sorted(closed - icmp):
        message = (
            "protocols other than TCP, UDP and SCTP stay blocked for addresses to which only some "
            "ports are open: NetworkPolicy cannot express them"
        )
        yield Shortfall(
            name or DEFAULT_FIELDS[ruleset.direction],
            FirewallReason.NOT_WHOLLY_EXPRESSIBLE,
            message,
        )


def _describe_undefined(rule: PacketRule) -> Shortfall:
    message = (
        "NetworkPolicy cannot express ICMP: it stays blocked, except for addresses for which all"
        " traffic is allowed"
        if rule.allows
        else "NetworkPolicy cannot express ICMP: no policy allows it; the network plugin decides"
    )
    return Shortfall(rule.name, FirewallReason.PROTOCOL_UNDEFINED, message)


# Rules that exceed the size limit.


def _fits(ruleset: Ruleset, limit: int) -> bool:
    """Return whether the allow rules of a ruleset fit into a policy; stop counting at the limit."""
    return estimate_work(ruleset) <= WORK_LIMIT and all(
        cost <= limit
        for cost in accumulate(
            allow_rule.cost for allow_rule in _find_allow_rules(find_traffic(ruleset))
        )
    )


def _shrink(ruleset: Ruleset, fits: Callable[[Ruleset], bool]) -> Ruleset:
    """Remove allowing rules, the last one first, until the rest fits.

    This is safe because it only denies more traffic.
    """
    allowing = [number for number, rule in enumerate(ruleset.rules) if rule.allows]
    # If the default is Allow, it counts as one more allowing rule after all others.
    steps = len(allowing) + ruleset.allows
    low, high = 0, steps
    while low < high:
        middle = (low + high + 1) // 2
        if fits(_keep(ruleset, allowing, middle)):
            low = middle
        else:
            high = middle - 1
    return _keep(ruleset, allowing, low)


def _keep(ruleset: Ruleset, allowing: list[int], count: int) -> Ruleset:
    dropped = set(allowing[count:])
    rules = tuple(rule for number, rule in enumerate(ruleset.rules) if number not in dropped)
    return replace(ruleset, rules=rules, allows=ruleset.allows and count > len(allowing))


def _list_dropped(ruleset: Ruleset, kept: Ruleset) -> Iterable[Shortfall]:
    left = {rule.name for rule in kept.rules}
    names = [rule.name for rule in ruleset.rules if rule.name not in left]
    if ruleset.allows and not kept.allows:
        names.append(DEFAULT_FIELDS[ruleset.direction])
    for name in names:
        yield Shortfall(name, FirewallReason.TOO_LARGE, _DROPPED)
