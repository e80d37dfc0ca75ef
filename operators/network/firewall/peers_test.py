"""Peers of rules, and addresses that administrators protect, as openings."""

from __future__ import annotations

from typing import Any

from libs.common.kinds import Manifest
from libs.contracts.compute import InstanceView
from operators.network.api.v1alpha1.firewall import FirewallReason, Protocol
from operators.network.firewall.addresses import AddressSet
from operators.network.firewall.compiler import AllowRule, PortRange, compile_firewall
from operators.network.firewall.cover import Block
from operators.network.firewall.peers import Peer, PeerCandidates, PeerType, resolve_peers
from operators.network.samples import build_instance, build_rule, parse_firewall

NODES = {"firewallRef": {"name": "nodes"}}


def ingress_of(*drawn: Manifest, **spec: Any) -> tuple[AllowRule, ...]:
    return compile_firewall(parse_firewall("web", *drawn, **spec).spec).ingress


def test_peers_with_the_same_ports_share_an_opening_beside_the_addresses() -> None:
    drawn = [
        build_rule("office", ports=[22], cidrs=["192.0.2.0/24"], peers=[NODES]),
        build_rule("lan", ports=[22], peers=[{"networkRef": {"name": "lan"}}]),
    ]

    ssh = (PortRange(Protocol.TCP, (22, 22)),)
    assert ingress_of(*drawn) == (
        AllowRule((Block("192.0.2.0/24"),), ssh),
        AllowRule((), ssh, (Peer(PeerType.NETWORK, "lan"), Peer(PeerType.FIREWALL, "nodes"))),
    )


def test_deny_for_everyone_closes_peers_and_deny_for_addresses_does_not() -> None:
    peers = build_rule("peers", ports=[22, 80], peers=[NODES])
    everyone = build_rule("ssh", action="Deny", ports=[22], priority=1)
    some = build_rule("some", action="Deny", ports=[22], priority=1, cidrs=["10.0.0.0/8"])

    (allow_rule,) = ingress_of(peers, everyone)
    assert allow_rule.ports == (PortRange(Protocol.TCP, (80, 80)),)
    (allow_rule,) = ingress_of(peers, some)
    assert len(allow_rule.ports) == 2


def test_default_that_allows_opens_nothing_more_to_peers() -> None:
    """What a rule takes from an address may not come back because a machine has the address."""
    drawn = [
        build_rule("bad", action="Deny", protocol="ALL", cidrs=["10.6.0.0/16"], priority=1),
        build_rule("peers", ports=[22], peers=[NODES]),
    ]

    allow_rules = ingress_of(*drawn, defaultIngress="Allow")

    assert [allow_rule.ports for allow_rule in allow_rules if allow_rule.peers] == [
        (PortRange(Protocol.TCP, (22, 22)),)
    ]


def test_protected_addresses_are_cut_out_and_neighbors_and_dns_stay_reachable() -> None:
    protected = AddressSet.of(["10.96.0.0/12", "169.254.169.254/32"])

    compiled = compile_firewall(parse_firewall().spec, protected=protected)

    blocks, neighbors, lookups = compiled.egress
    assert blocks.blocks == (
        Block("0.0.0.0/0", ("10.96.0.0/12", "169.254.169.254/32")),
        Block("::/0"),
    )
    assert (neighbors.peers, neighbors.ports) == ((Peer(PeerType.NEIGHBORS),), ())
    assert lookups.peers == (Peer(PeerType.CLUSTER_DNS),)
    assert {(each.protocol, each.ports) for each in lookups.ports} == {
        (Protocol.UDP, (53, 53)),
        (Protocol.TCP, (53, 53)),
    }
    assert compiled.shortfalls == ()


def test_rule_for_protected_addresses_is_told() -> None:
    drawn = [
        build_rule("api", direction="Egress", ports=[443], cidrs=["10.96.0.0/24"]),
        build_rule("web", direction="Egress", ports=[443], cidrs=["192.0.2.0/24"]),
    ]
    protected = AddressSet.of(["10.96.0.0/12"])

    compiled = compile_firewall(
        parse_firewall("web", *drawn, defaultEgress="Deny").spec, protected=protected
    )

    assert compiled.egress == (
        AllowRule((Block("192.0.2.0/24"),), (PortRange(Protocol.TCP, (443, 443)),)),
    )
    assert [(reported.rule, reported.reason) for reported in compiled.shortfalls] == [
        ("api", FirewallReason.PROTECTED)
    ]


def test_peers_that_make_the_policy_too_large_are_closed_and_told() -> None:
    drawn = [
        build_rule(
            f"peer-{number}", ports=[number], peers=[{"firewallRef": {"name": f"f{number}"}}]
        )
        for number in (1, 2, 3)
    ]

    compiled = compile_firewall(parse_firewall("web", *drawn, defaultEgress="Deny").spec, limit=4)

    assert [allow_rule.ports for allow_rule in compiled.ingress] == [
        (PortRange(Protocol.TCP, (number, number)),) for number in (1, 2)
    ]
    assert [(reported.rule, reported.reason) for reported in compiled.shortfalls] == [
        ("peer-3", FirewallReason.TOO_LARGE)
    ]


def test_peers_that_are_too_many_instances_are_left_out() -> None:
    every = Peer(PeerType.INSTANCES, "{}")
    web = Peer(PeerType.FIREWALL, "web")

    names = ("front", "a", "b", "c")
    instances = [
        InstanceView.parse(build_instance(name, firewall="web" if name == "front" else ""))
        for name in names
    ]
    selections = resolve_peers([web, every], PeerCandidates(instances), limit=4)

    assert selections.too_many == {every}
    (selected,) = selections.peers[web]
    assert selected["podSelector"]["matchExpressions"][0]["values"] == ["front-uid"]
    (nobody,) = selections.peers[every]
    assert nobody["podSelector"]["matchExpressions"][0]["values"] == ["none"]
