"""Computes the traffic that a firewall allows in one direction, independent of any backend. Pure.

The ranges of all addresses and of all ports are cut wherever a rule begins or ends. For each piece
of the address range, the rules that apply to it are evaluated in order, for all ports at once: a
set of ports is a number with one bit for each piece of the port range. Address pieces with the same
allowed ports are joined to one zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from operators.network.api.v1alpha1.firewall import (
    LAST_PORT,
    Action,
    Direction,
    FirewallRule,
    FirewallSpec,
    Protocol,
    parse_ports,
)
from operators.network.firewall.addresses import BITS, EVERYWHERE, AddressSet, Span, cut, join
from operators.network.firewall.peers import Peer

PORTED: Final = (Protocol.TCP, Protocol.UDP, Protocol.SCTP)
"""Protocols with ports, which are the protocols that NetworkPolicy supports."""
ALL_PORTS: Final = (0, LAST_PORT + 1)
"""The range of ports. No rule can name port 0; a rule without ports includes it."""


@dataclass(frozen=True, slots=True)
class PacketRule:
    """One rule in the form that the evaluation needs.

    Attributes:
        ports: Half-open spans of ports; empty for all.
        addresses: Addresses at the other end.
    """

    name: str
    allows: bool
    protocol: Protocol
    ports: tuple[Span, ...]
    addresses: AddressSet


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Rules of one direction.

    Attributes:
        rules: Rules in the order of their evaluation.
        allows: Whether packets that match no rule are allowed.
    """

    direction: Direction
    rules: tuple[PacketRule, ...]
    allows: bool


@dataclass(frozen=True, slots=True)
class PortClass:
    """Ports of one protocol that all rules treat equally.

    Attributes:
        protocol: The protocol; ALL stands for protocols without a name in the API.
        ports: Half-open span of ports.
    """

    protocol: Protocol
    ports: Span = ALL_PORTS


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Addresses with the same allowed traffic.

    Attributes:
        allowed: A number with one bit for each allowed port class.
        deciders: Name of the deciding rule for each port class whose protocol NetworkPolicy does
            not support, in the order of `Traffic.port_classes`; empty for the default.
    """

    addresses: AddressSet
    allowed: int
    deciders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The allowed traffic in one direction.

    Attributes:
        port_classes: All protocols and ports, cut wherever a rule begins or ends.
        zones: All addresses, grouped by their allowed traffic.
    """

    port_classes: tuple[PortClass, ...]
    zones: tuple[AddressRange, ...]


def build_ruleset(spec: FirewallSpec, direction: Direction) -> Ruleset:
    """Build the rules about addresses of one direction, in their order."""
    ordered = [rule for rule in _order(spec, direction) if rule.cidrs or not rule.peers]
    default = spec.default_ingress if direction is Direction.INGRESS else spec.default_egress
    rules = tuple(map(_build_rule, ordered))
    return Ruleset(direction, rules, default is Action.ALLOW)


def build_peer_ruleset(spec: FirewallSpec, direction: Direction, peer: Peer) -> Ruleset:
    """Build the rules that decide about one peer, whatever its address.

    These are the rules that name the peer, and the rules that deny all addresses. A peer is allowed
    in addition to its address: neither rules about addresses nor the default apply to it.
    """
    rules = tuple(
        replace(_build_rule(rule), addresses=EVERYWHERE)
        for rule in _order(spec, direction)
        if peer in map(Peer.of, rule.peers)
        or (rule.action is Action.DENY and not rule.cidrs and not rule.peers)
    )
    return Ruleset(direction, rules, allows=False)


def list_peers(spec: FirewallSpec, direction: Direction) -> tuple[Peer, ...]:
    """Return the distinct peers of the rules of one direction, in the order of the rules."""
    found = (Peer.of(peer) for rule in _order(spec, direction) for peer in rule.peers)
    return tuple(dict.fromkeys(found))


def estimate_work(ruleset: Ruleset) -> int:
    """Return a number to which the time of `find_traffic` is proportional."""
    spans = {
        span for rule in ruleset.rules for family in BITS for span in rule.addresses.spans(family)
    }
    return len(spans) * len(_cut_ports(ruleset.rules))


def find_traffic(ruleset: Ruleset) -> Traffic:
    """Compute the traffic that a ruleset allows, for every address, protocol and port."""
    rules = ruleset.rules
    port_classes = _cut_ports(rules)
    reaches = [_find_reach(rule, port_classes) for rule in rules]
    silent = [number for number, each in enumerate(port_classes) if each.protocol not in PORTED]
    found: dict[tuple[int, tuple[str, ...]], dict[int, list[Span]]] = {}
    walked: dict[int, tuple[int, tuple[str, ...]]] = {}
    for family in BITS:
        sets = [rule.addresses.spans(family) for rule in rules]
        for span, applying in cut(sets, 1 << BITS[family]):
            if applying not in walked:
                walked[applying] = _walk(ruleset, reaches, applying, len(port_classes), silent)
            found.setdefault(walked[applying], {4: [], 6: []})[family].append(span)
    zones = (
        AddressRange(AddressSet(join(spans[4]), join(spans[6])), allowed, deciders)
        for (allowed, deciders), spans in found.items()
    )
    return Traffic(port_classes, tuple(zones))


def _order(spec: FirewallSpec, direction: Direction) -> list[FirewallRule]:
    """Order the rules of one direction: by priority, Deny before Allow, then by name."""
    return sorted(
        (rule for rule in spec.rules if rule.direction is direction),
        key=lambda rule: (rule.priority, rule.action is Action.ALLOW, rule.name),
    )


def _build_rule(rule: FirewallRule) -> PacketRule:
    ports = join((first, last + 1) for first, last in map(parse_ports, rule.ports))
    addresses = AddressSet.of(rule.cidrs) if rule.cidrs else EVERYWHERE
    return PacketRule(rule.name, rule.action is Action.ALLOW, rule.protocol, ports, addresses)


def _cut_ports(rules: Sequence[PacketRule]) -> tuple[PortClass, ...]:
    edges: Mapping[Protocol, set[int]] = {protocol: set(ALL_PORTS) for protocol in PORTED}
    for rule in rules:
        for span in rule.ports:
            edges[rule.protocol].update(span)
    port_classes = [
        PortClass(protocol, span) for protocol in PORTED for span in _pair(sorted(edges[protocol]))
    ]
    return (*port_classes, PortClass(Protocol.ICMP), PortClass(Protocol.ALL))


def _pair(edges: Sequence[int]) -> Iterable[Span]:
    return pairwise(edges)


def _find_reach(rule: PacketRule, port_classes: Sequence[PortClass]) -> int:
    """Return a number with one bit for each port class to which a rule applies."""
    bits = []
    for port_class in port_classes:
        about = rule.protocol in (Protocol.ALL, port_class.protocol)
        first, end = port_class.ports
        inside = not rule.ports or any(low <= first and end <= high for low, high in rule.ports)
        bits.append("1" if about and inside else "0")
    return int("".join(reversed(bits)), 2)


def _walk(
    ruleset: Ruleset, reaches: Sequence[int], applying: int, count: int, silent: Sequence[int]
) -> tuple[int, tuple[str, ...]]:
    """Evaluate the rules that apply; the first rule that matches a port class decides about it."""
    everything = (1 << count) - 1
    decided = allowed = 0
    deciders = dict.fromkeys(silent, "")
    while applying and decided != everything:
        number = (applying & -applying).bit_length() - 1
        applying &= applying - 1
        rule, fresh = ruleset.rules[number], reaches[number] & ~decided
        decided |= fresh
        if rule.allows:
            allowed |= fresh
        for port_class in silent:
            if fresh >> port_class & 1:
                deciders[port_class] = rule.name
    if ruleset.allows:
        allowed |= everything & ~decided
    return allowed, tuple(deciders.values())
