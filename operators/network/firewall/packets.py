"""Packets, and two interpreters of what becomes of one: the oracle of the compiler's tests.

Neither knows anything of the other or of the compiler. One walks the rules of a Firewall as its
documentation says; the other reads a NetworkPolicy as the documentation of Kubernetes says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

from operators.network.api.v1alpha1.firewall import (
    Direction,
    FirewallSpec,
    Protocol,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a connection.

    Attributes:
        direction: Whether it comes to an instance or goes from it.
        protocol: Its protocol; ALL stands for one that has no name here, such as ESP.
        port: Port at the receiver; 0 where the protocol has none.
        address: Address at the other end.
    """

    direction: Direction
    protocol: Protocol
    port: int
    address: IPv4Address | IPv6Address


def find_decider(spec: FirewallSpec, packet: Packet) -> tuple[bool, str]:
    """Walk the rules of a firewall; tell whether a packet passes, and the name of who says so."""
    for priority in sorted({rule.priority for rule in spec.rules}):
        for action in (Verdict.DENY, Verdict.ALLOW):
            for rule in sorted(spec.rules, key=lambda each: each.name):
                if rule.priority != priority or rule.action is not action:
                    continue
                if (
                    rule.direction is packet.direction
                    and rule.protocol in (Protocol.ALL, packet.protocol)
                    and _is_in(rule.cidrs, packet)
                    and _names(rule.ports, packet.port)
                ):
                    return action is Verdict.ALLOW, rule.name
    if packet.direction is Direction.INGRESS:
        return spec.default_ingress is Verdict.ALLOW, "defaultIngress"
    return spec.default_egress is Verdict.ALLOW, "defaultEgress"


def passes_policy(policy: Mapping[str, Any], packet: Packet) -> bool:
    """Read a NetworkPolicy; tell whether a packet to or from a selected pod passes."""
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


def _is_in(cidrs: list[str], packet: Packet) -> bool:
    return not cidrs or any(packet.address in ip_network(cidr) for cidr in cidrs)


def _names(ports: list[int | str], port: int) -> bool:
    for each in ports:
        first, _, last = str(each).partition("-")
        if int(first) <= port <= int(last or first):
            return True
    return not ports


def _reaches(peers: list[Any] | None, packet: Packet) -> bool:
    if not peers:
        return True
    for peer in peers:
        block = peer["ipBlock"]
        left_out = any(packet.address in ip_network(each) for each in block.get("except") or ())
        if packet.address in ip_network(block["cidr"]) and not left_out:
            return True
    return False


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
