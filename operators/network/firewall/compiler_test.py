"""The compiled policy lets pass what the rules allow: packet by packet, against an interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from libs.common.kinds import Manifest
from libs.contracts.compute import INSTANCE_UID_LABEL, NETWORK_LABEL, InstanceView
from operators.network.api.v1alpha1.firewall import Direction, FirewallReason, Protocol
from operators.network.api.v1alpha1.peers import FirewallPeer
from operators.network.firewall.addresses import BITS, AddressSet
from operators.network.firewall.compiler import WORK_LIMIT, AllowRule, PortRange, compile_firewall
from operators.network.firewall.cover import Block
from operators.network.firewall.packets import (
    Packet,
    Pod,
    find_decider,
    is_allowed,
    passes_policy,
)
from operators.network.firewall.peers import PeerCandidates
from operators.network.firewall.resources import build_firewall_policy
from operators.network.firewall.traffic import (
    PORTED,
    Ruleset,
    Traffic,
    estimate_work,
    find_traffic,
)
from operators.network.resources import PolicyTarget
from operators.network.samples import build_instance, build_rule, parse_firewall

BASES = {
    4: [0, int(IPv4Address("10.0.0.0")), (1 << 32) - 8],
    6: [0, int(IPv6Address("fd00::")), (1 << 128) - 8],
}
PORTS = [1, 2, 21, 22, 23, 53, 80, 1024, 65_534, 65_535]


PEERS: list[Manifest] = [
    {"instances": {"matchLabels": {"role": "db"}}},
    {"instances": {}},
    {"firewallRef": {"name": "web"}},
    {"networkRef": {"name": "lan"}},
    {"namespaceSelector": {"matchLabels": {"team": "a"}}},
]
INSTANCES = [
    InstanceView.parse(build_instance("db", firewall="other", labels={"role": "db"})),
    InstanceView.parse(build_instance("front", firewall="web")),
    InstanceView.parse(build_instance("old", labels={"role": "db"})),
    InstanceView.parse(build_instance("stranger", network="dmz")),
]
AROUND = PeerCandidates(tuple(INSTANCES), frozenset({"old-uid"}))
"""The pod of `old` was started before pods carried the label of their network."""


@dataclass(frozen=True)
class End:
    """Who is at the other end of a packet, and which of `PEERS` that is: written by hand."""

    pod: Pod | None
    peers: tuple[int, ...] = ()

    def belongs(self, peer: FirewallPeer) -> bool:
        return any(FirewallPeer.model_validate(PEERS[each]) == peer for each in self.peers)


HOME = {"kubernetes.io/metadata.name": "default"}
ENDS = [
    End(None),
    End(Pod({"app": "nginx"}, HOME)),
    End(Pod({INSTANCE_UID_LABEL: "db-uid", NETWORK_LABEL: "lan"}, HOME), (0, 1, 3)),
    End(Pod({INSTANCE_UID_LABEL: "front-uid", NETWORK_LABEL: "lan"}, HOME), (1, 2, 3)),
    End(Pod({INSTANCE_UID_LABEL: "old-uid"}, HOME), (0, 1, 3)),
    End(Pod({INSTANCE_UID_LABEL: "stranger-uid", NETWORK_LABEL: "dmz"}, HOME), (1,)),
    End(Pod({INSTANCE_UID_LABEL: "db-uid"}, {"team": "a"}, is_neighbor=False), (4,)),
    End(Pod({}, {"kubernetes.io/metadata.name": "kube-system"}, is_neighbor=False)),
]


@st.composite
def cidrs(draw: st.DrawFn) -> str:
    """Draw blocks that nest, touch and meet the ends of the address line."""
    family = draw(st.sampled_from([4, 6]))
    bits = BITS[family]
    free = draw(st.sampled_from([0, 1, 2, 3, 8, bits - 1, bits]))
    first = draw(st.sampled_from(BASES[family])) + draw(st.integers(0, 7))
    address = (first >> free) << free
    rendered = IPv4Address(address) if family == 4 else IPv6Address(address)
    return f"{rendered}/{bits - free}"


@st.composite
def rules(draw: st.DrawFn, *, peers: bool = False) -> list[Manifest]:
    """Draw up to seven rules of few priorities, so that they get in each other's way."""
    drawn = []
    for number in range(draw(st.integers(0, 7))):
        protocol = draw(st.sampled_from(Protocol))
        ports = st.lists(st.tuples(st.sampled_from(PORTS), st.sampled_from(PORTS)), max_size=2)
        spans = draw(ports) if protocol in PORTED else []
        rule = build_rule(
            f"rule-{number}",
            protocol=str(protocol),
            direction=str(draw(st.sampled_from(Direction))),
            action=draw(st.sampled_from(["Allow", "Deny"])),
            priority=draw(st.integers(0, 2)),
            cidrs=draw(st.lists(cidrs(), max_size=3)),
            peers=draw(st.lists(st.sampled_from(PEERS), max_size=2)) if peers else [],
            ports=[f"{min(span)}-{max(span)}" for span in spans],
        )
        if rule["peers"]:
            rule["action"] = "Allow"
        drawn.append(rule)
    return drawn


@st.composite
def packets(draw: st.DrawFn, drawn: list[Manifest]) -> Packet:
    """Draw a packet at or next to an edge of some rule."""
    edges = [address for rule in drawn for cidr in rule["cidrs"] for address in _edges(cidr)]
    family, number = draw(st.sampled_from(edges or [(4, 0), (6, 0)]))
    number = min(max(number + draw(st.integers(-1, 1)), 0), (1 << BITS[family]) - 1)
    protocol = draw(st.sampled_from(Protocol))
    near = st.sampled_from(PORTS).flatmap(lambda port: st.integers(port - 1, port + 1))
    port = min(draw(near), 65_535) if protocol in PORTED else 0
    address = IPv4Address(number) if family == 4 else IPv6Address(number)
    return Packet(draw(st.sampled_from(Direction)), protocol, port, address)


def _edges(cidr: str) -> list[tuple[int, int]]:
    block = ip_network(cidr)
    return [(block.version, int(block[0])), (block.version, int(block[-1]))]


@settings(max_examples=150)
@given(
    data=st.data(),
    drawn=rules(peers=True),
    ingress=st.booleans(),
    egress=st.booleans(),
    protected=st.lists(cidrs(), max_size=2),
)
def test_policy_lets_pass_what_the_rules_allow_and_tells_of_the_rest(
    data: st.DataObject, drawn: list[Manifest], ingress: bool, egress: bool, protected: list[str]
) -> None:
    defaults = [["Deny", "Allow"][each] for each in (ingress, egress)]
    firewall = parse_firewall("web", *drawn, defaultIngress=defaults[0], defaultEgress=defaults[1])
    compiled = compile_firewall(firewall.spec, protected=AddressSet.of(protected))
    policy = build_firewall_policy(firewall, compiled, ["vm-uid"], PolicyTarget(), AROUND)
    reported = {shortfall.rule for shortfall in compiled.shortfalls}
    for _ in range(12):
        end = data.draw(st.sampled_from(ENDS))
        packet = replace(data.draw(packets(drawn)), pod=end.pod)
        allowed = is_allowed(firewall.spec, packet, end.belongs, protected)
        decider = find_decider(firewall.spec, packet)[1]
        passes = passes_policy(policy, packet)

        if packet.protocol in PORTED and packet.port > 0:
            assert passes == allowed, packet
        elif packet.port == 0 and packet.protocol in PORTED:
            assert allowed or not passes, "a port without a name is never opened"
        else:
            assert allowed or not passes, "what has no word is never opened"
            deciders = {decider, *(each["name"] for each in drawn if each["peers"])}
            silent = passes != allowed and not deciders & reported
            assert not silent, f"{decider} is not in force, silently"


@settings(max_examples=100)
@given(
    data=st.data(), drawn=rules(peers=True), egress=st.booleans(), family=st.sampled_from([4, 6])
)
def test_policy_for_one_family_opens_the_same_to_it_and_nothing_more(
    data: st.DataObject, drawn: list[Manifest], egress: bool, family: int
) -> None:
    firewall = parse_firewall("web", *drawn, defaultEgress=["Deny", "Allow"][egress])
    compiled = compile_firewall(firewall.spec, protected=AddressSet.of(["10.0.0.1/32"]))
    whole = build_firewall_policy(firewall, compiled, ["vm-uid"], PolicyTarget(), AROUND)
    narrow = PolicyTarget(families=frozenset({family}))
    policy = build_firewall_policy(firewall, compiled, ["vm-uid"], narrow, AROUND)

    rules = [*policy["spec"]["ingress"], *policy["spec"]["egress"]]
    peers = [peer for rule in rules for peer in rule.get("from", rule.get("to", []))]
    blocks = [peer["ipBlock"]["cidr"] for peer in peers if "ipBlock" in peer]
    assert {ip_network(each).version for each in blocks} <= {family}
    for _ in range(12):
        end = data.draw(st.sampled_from(ENDS))
        packet = replace(data.draw(packets(drawn)), pod=end.pod)
        passes = passes_policy(policy, packet)
        if packet.address.version == family:
            assert passes == passes_policy(whole, packet), packet
        else:
            assert not passes or passes_policy(whole, packet), packet


# What comes out, and that it is as short as it can be.


def ingress_of(*drawn: Manifest, **spec: Any) -> tuple[AllowRule, ...]:
    return compile_firewall(parse_firewall("web", *drawn, **spec).spec).ingress


def test_nothing_is_open_without_rules_but_what_the_defaults_say() -> None:
    compiled = compile_firewall(parse_firewall().spec)

    assert compiled.ingress == ()
    assert compiled.egress == (AllowRule(),)
    assert compiled.shortfalls == ()


def test_rules_for_the_same_addresses_share_an_opening() -> None:
    drawn = [
        build_rule("ssh", ports=[22], cidrs=["10.0.0.0/8"]),
        build_rule("dns", protocol="UDP", ports=[53], cidrs=["10.0.0.0/9", "10.128.0.0/9"]),
    ]

    assert ingress_of(*drawn) == (
        AllowRule(
            (Block("10.0.0.0/8"),),
            (PortRange(Protocol.TCP, (22, 22)), PortRange(Protocol.UDP, (53, 53))),
        ),
    )


def test_touching_ranges_become_one() -> None:
    drawn = [build_rule("a", ports=["80-89"]), build_rule("b", ports=["90-99", 85])]

    assert ingress_of(*drawn) == (AllowRule((), (PortRange(Protocol.TCP, (80, 99)),)),)


def test_denied_block_becomes_an_exception() -> None:
    drawn = [
        build_rule("bad", action="Deny", cidrs=["10.6.0.0/16"], protocol="ALL", priority=1),
        build_rule("web", ports=[443], cidrs=["10.0.0.0/8"], priority=2),
    ]

    assert ingress_of(*drawn) == (
        AllowRule((Block("10.0.0.0/8", ("10.6.0.0/16",)),), (PortRange(Protocol.TCP, (443, 443)),)),
    )


def test_deny_goes_first_within_a_priority() -> None:
    drawn = [build_rule("allow", ports=[22]), build_rule("z-deny", action="Deny", ports=[22])]

    assert ingress_of(*drawn) == ()


def test_denied_port_leaves_the_others_open() -> None:
    deny = build_rule("smtp", action="Deny", direction="Egress", ports=[25])

    compiled = compile_firewall(parse_firewall("web", deny).spec)

    assert compiled.egress == (
        AllowRule(
            (),
            (
                PortRange(Protocol.TCP, (1, 24)),
                PortRange(Protocol.TCP, (26, 65_535)),
                PortRange(Protocol.UDP),
                PortRange(Protocol.SCTP),
            ),
        ),
    )
    assert [(each.rule, each.reason) for each in compiled.shortfalls] == [
        ("defaultEgress", FirewallReason.NOT_WHOLLY_EXPRESSIBLE)
    ]


def test_open_addresses_do_not_cut_up_what_is_open_to_all() -> None:
    drawn = [
        build_rule("office", protocol="ALL", cidrs=["192.0.2.0/24"]),
        build_rule("web", ports=[443]),
    ]

    assert ingress_of(*drawn) == (
        AllowRule((Block("192.0.2.0/24"),)),
        AllowRule((), (PortRange(Protocol.TCP, (443, 443)),)),
    )


@pytest.mark.parametrize("action", ["Allow", "Deny"])
def test_rule_about_icmp_is_told(action: str) -> None:
    rule = build_rule("ping", protocol="ICMP", action=action)

    (reported,) = compile_firewall(parse_firewall("web", rule).spec).shortfalls

    assert (reported.rule, reported.reason) == ("ping", FirewallReason.PROTOCOL_UNDEFINED)


def test_rule_that_makes_the_policy_too_large_is_closed_and_told() -> None:
    many = [f"10.0.{number}.0/28" for number in range(64)]
    drawn = [
        build_rule("a-kept", ports=[22], cidrs=["10.0.0.0/8"]),
        build_rule("z-many", ports=[80], cidrs=many),
    ]
    firewall = parse_firewall("web", *drawn, defaultEgress="Deny")

    compiled = compile_firewall(firewall.spec, limit=50)

    assert compiled.ingress == (
        AllowRule((Block("10.0.0.0/8"),), (PortRange(Protocol.TCP, (22, 22)),)),
    )
    assert [(reported.rule, reported.reason) for reported in compiled.shortfalls] == [
        ("z-many", FirewallReason.TOO_LARGE)
    ]


@settings(max_examples=60)
@example([], 0)
@given(drawn=rules(), limit=st.integers(0, 12))
def test_shrunk_policy_fits_and_opens_no_more(drawn: list[Manifest], limit: int) -> None:
    spec = parse_firewall("web", *drawn, defaultIngress="Allow").spec
    whole, shrunk = compile_firewall(spec), compile_firewall(spec, limit=limit)

    assert sum(allow_rule.cost for allow_rule in shrunk.ingress) <= limit
    if sum(allow_rule.cost for allow_rule in whole.ingress) > limit:
        assert FirewallReason.TOO_LARGE in {reported.reason for reported in shrunk.shortfalls}


def test_time_to_compile_what_the_api_server_accepts_is_bounded() -> None:
    """A tenant may change such a firewall each minute. Its rules need 134 million steps."""
    rules = [
        build_rule(
            f"r{number}",
            action="Allow" if number % 2 else "Deny",
            priority=number,
            cidrs=[f"10.{number}.{block}.0/25" for block in range(64)],
            ports=[1000 + number * 32 + port * 2 for port in range(16)],
        )
        for number in range(256)
    ]
    spec = parse_firewall("web", *rules).spec
    work: list[int] = []

    def count(ruleset: Ruleset) -> Traffic:
        work.append(estimate_work(ruleset))
        return find_traffic(ruleset)

    with patch("operators.network.firewall.compiler.find_traffic", count):
        compiled = compile_firewall(spec)

    assert sum(work) <= 2 * WORK_LIMIT
    assert compiled.ingress == (), "only rules that deny fit"
    assert {each.reason for each in compiled.shortfalls} == {FirewallReason.TOO_LARGE}
