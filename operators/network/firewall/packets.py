"""Packets and two interpreters that decide about them: the oracle of the compiler's tests.

The interpreters are independent of each other and of the compiler. One evaluates the rules of a
Firewall as documented; the other evaluates a NetworkPolicy as Kubernetes documents it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from libs.common.labels import matches_selector
from operators.network.api.v1alpha1.firewall import (
    Action,
    Direction,
    FirewallRule,
    FirewallSpec,
    Protocol,
)
from operators.network.api.v1alpha1.peers import FirewallPeer

type Belongs = Callable[[FirewallPeer], bool]
"""Returns whether a peer selects the other end of a packet."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod at the other end.

    Attributes:
        labels: Labels of the pod.
        namespace_labels: Labels of its namespace.
        is_neighbor: Whether it is in the namespace of the policy.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    is_neighbor: bool = True


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a connection.

    Attributes:
        direction: Ingress to an instance, or Egress from it.
        protocol: Protocol; ALL stands for any other protocol, such as ESP.
        port: Destination port; 0 if the protocol has no ports.
        pod: Pod at the other end; None for an end outside the cluster.
    """

    direction: Direction
    protocol: Protocol
    port: int
    address: IPv4Address | IPv6Address
    pod: Pod | None = None


def is_allowed(
    spec: FirewallSpec, packet: Packet, belongs: Belongs, protected: Sequence[str] = ()
) -> bool:
    """Return whether a firewall allows a packet: by address, by peer, or as always reachable.

    Args:
        spec: The rules.
        packet: The packet.
        belongs: Returns whether a peer matches the other end.
        protected: Addresses to which no packet may be sent.
    """
    sent = packet.direction is Direction.EGRESS
    if not (sent and _is_in(protected, packet)) and find_decider(spec, packet)[0]:
        return True
    peers = [peer for rule in spec.rules for peer in rule.peers if belongs(peer)]
    if any(_passes_as(spec, packet, peer) for peer in peers):
        return True
    if not (sent and protected and packet.pod is not None):
        return False
    lookup = packet.port == 53 and packet.protocol in (Protocol.UDP, Protocol.TCP)
    resolver = packet.pod.namespace_labels.get("kubernetes.io/metadata.name") == "kube-system"
    return (packet.pod.is_neighbor or (lookup and resolver)) and _reaches_every_address(
        spec, packet
    )


def _passes_as(spec: FirewallSpec, packet: Packet, peer: FirewallPeer) -> bool:
    for rule in _in_order(spec):
        named = peer in rule.peers
        everyone = rule.action is Action.DENY and not rule.cidrs and not rule.peers
        if (named or everyone) and _is_about(rule, packet):
            return named
    return False


def _reaches_every_address(spec: FirewallSpec, packet: Packet) -> bool:
    """Return whether the packet would be allowed to every address.

    Only the addresses at which a rule begins or ends are tried: between them nothing changes.
    """
    numbers = {4: {0, (1 << 32) - 1}, 6: {0, (1 << 128) - 1}}
    for rule in spec.rules:
        for block in map(ip_network, rule.cidrs):
            first, last = int(block[0]), int(block[-1])
            top = (1 << block.max_prefixlen) - 1
            numbers[block.version] |= {first, last, max(first - 1, 0), min(last + 1, top)}
    addresses = [IPv4Address(each) for each in numbers[4]] + [
        IPv6Address(each) for each in numbers[6]
    ]
    return all(
        find_decider(spec, replace(packet, address=ip_address(each)))[0] for each in addresses
    )


def _in_order(spec: FirewallSpec) -> Iterable[FirewallRule]:
    for priority in sorted({rule.priority for rule in spec.rules}):
        for action in (Action.DENY, Action.ALLOW):
            for rule in sorted(spec.rules, key=lambda each: each.name):
                if rule.priority == priority and rule.action is action:
                    yield rule


def _is_about(rule: FirewallRule, packet: Packet) -> bool:
    return (
        rule.direction is packet.direction
        and rule.protocol in (Protocol.ALL, packet.protocol)
        and _names(rule.ports, packet.port)
    )


def find_decider(spec: FirewallSpec, packet: Packet) -> tuple[bool, str]:
    """Evaluate the rules about addresses; return whether they allow the packet, and which rule."""
    for rule in _in_order(spec):
        about_addresses = bool(rule.cidrs) or not rule.peers
        everyone = not rule.cidrs
        if about_addresses and _is_about(rule, packet) and (everyone or _is_in(rule.cidrs, packet)):
            return rule.action is Action.ALLOW, rule.name
    if packet.direction is Direction.INGRESS:
        return spec.default_ingress is Action.ALLOW, "defaultIngress"
    return spec.default_egress is Action.ALLOW, "defaultEgress"


def passes_policy(policy: Mapping[str, Any], packet: Packet) -> bool:
    """Evaluate a NetworkPolicy; return whether a packet to or from a selected pod passes."""
    spec = policy["spec"]
    if str(packet.direction) not in spec["policyTypes"]:
        return True
    field, peers = (
        ("ingress", "from") if packet.direction is Direction.INGRESS else ("egress", "to")
    )
    return any(
        _reaches(rule.get(peers), packet) and _opens(rule.get("ports"), packet)
        for rule in spec.get(field) or ()
    )


def _is_in(cidrs: Sequence[str], packet: Packet) -> bool:
    return any(packet.address in ip_network(cidr) for cidr in cidrs)


def _names(ports: list[int | str], port: int) -> bool:
    for each in ports:
        first, _, last = str(each).partition("-")
        if int(first) <= port <= int(last or first):
            return True
    return not ports


def _reaches(peers: list[Any] | None, packet: Packet) -> bool:
    if not peers:
        return True
    return any(
        _is_in_block(peer["ipBlock"], packet) if "ipBlock" in peer else _selects(peer, packet.pod)
        for peer in peers
    )


def _is_in_block(block: Mapping[str, Any], packet: Packet) -> bool:
    left_out = any(packet.address in ip_network(each) for each in block.get("except") or ())
    return packet.address in ip_network(block["cidr"]) and not left_out


def _selects(peer: Mapping[str, Any], pod: Pod | None) -> bool:
    if pod is None:
        return False
    where = peer.get("namespaceSelector")
    there = pod.is_neighbor if where is None else matches_selector(where, pod.namespace_labels)
    return there and matches_selector(peer.get("podSelector") or {}, pod.labels)


def _opens(ports: list[Any] | None, packet: Packet) -> bool:
    if not ports:
        return True
    for each in ports:
        if each["protocol"] != packet.protocol:
            continue
        first = each.get("port")
        if first is None or first <= packet.port <= each.get("endPort", first):
            return True
    return False
