"""Policies follow the machines that rules name as peers, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from libs.common.kinds import NETWORK_POLICY, POD, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL, NETWORK_LABEL
from operators.network.conformance_test import bare
from operators.network.controller import OPERATOR
from operators.network.samples import build_firewall, build_instance, build_network, build_rule
from operators.network.settings import Settings

POLICY = Key("default", "firewall-web")
FRONT = Key("default", "front")


def add_instance(api: FakeApi, name: str, **fields: Any) -> str:
    instance = bare(build_instance(name, **fields))
    instance["metadata"]["labels"] = fields.get("labels") or {}
    return str(api.create(instance)["metadata"]["uid"])


def sources(api: FakeApi) -> list[Manifest]:
    """List who may reach the instances of the firewall `web`."""
    (rule,) = api.get(NETWORK_POLICY, POLICY)["spec"]["ingress"]
    return [peer["podSelector"] for peer in rule["from"]]


def uids(*names: str) -> Manifest:
    values = sorted(names)
    return {"matchExpressions": [{"key": INSTANCE_UID_LABEL, "operator": "In", "values": values}]}


async def test_policy_follows_the_instances_that_name_a_firewall(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network()))
    rule = build_rule("front", ports=[5432], peers=[{"firewallRef": {"name": "front"}}])
    api.create(bare(build_firewall("web", rule)))
    await harness.converged()
    assert sources(api) == [uids("none")], "nobody, and not everybody"

    front = add_instance(api, "front", firewall="front")
    add_instance(api, "other", firewall="other")
    await harness.converged()
    assert sources(api) == [uids(front)]

    api.patch(INSTANCE, FRONT, {"spec": {"firewallRef": {"name": "other"}}})
    await harness.converged()
    assert sources(api) == [uids("none")]


async def test_policy_follows_the_labels_of_instances(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network()))
    peer = {"instances": {"matchLabels": {"role": "front"}}}
    api.create(bare(build_firewall("web", build_rule("front", peers=[peer]))))
    front = add_instance(api, "front", labels={"role": "front"})
    add_instance(api, "plain")
    await harness.converged()
    assert sources(api) == [uids(front)]

    api.patch(INSTANCE, FRONT, {"metadata": {"labels": {"role": "back"}}})
    await harness.converged()
    assert sources(api) == [uids("none")]


async def test_network_as_a_peer_is_its_label_and_machines_that_lack_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network()))
    rule = build_rule("lan", peers=[{"networkRef": {"name": "lan"}}])
    api.create(bare(build_firewall("web", rule)))
    old = add_instance(api, "old")
    await harness.converged()
    label = {"matchLabels": {NETWORK_LABEL: "lan"}}
    assert sources(api) == [label]

    spec = {"containers": [{"name": "compute", "image": "launcher"}]}
    marks = {"labels": {INSTANCE_UID_LABEL: old}}
    api.create(build_object(POD, "launcher", "default", metadata=marks, spec=spec))
    await harness.converged()
    assert sources(api) == [label, uids(old)]

    api.delete(POD, Key("default", "launcher"))
    await harness.converged()
    assert sources(api) == [label]


async def test_nothing_opens_the_protected_addresses(
    api: FakeApi, harness: OperatorHarness
) -> None:
    add_instance(api, "plain")
    api.create(bare(build_network()))
    api.create(bare(build_firewall()))
    await harness.converged()

    for name in ("network-lan-open", "firewall-web"):
        egress = api.get(NETWORK_POLICY, Key("default", name))["spec"]["egress"]
        assert all(rule.get("to") for rule in egress), "an empty list is everywhere"
        blocks = [peer["ipBlock"] for rule in egress for peer in rule["to"] if "ipBlock" in peer]
        assert blocks == [
            {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]},
            {"cidr": "::/0", "except": ["fd00:ec2::254/128"]},
        ]


async def test_policies_have_blocks_of_the_families_of_pods_only(api: FakeApi) -> None:
    add_instance(api, "plain")
    api.create(bare(build_network()))
    rule = build_rule("dual", ports=[443], cidrs=["10.0.0.0/8", "fd00::/8"])
    other = build_rule("v6", ports=[80], cidrs=["fd00::/8"])
    api.create(bare(build_firewall("web", rule, other)))
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default",), pod_ips="10.244.0.7"
    ) as harness:
        await harness.converged()

    opened = api.get(NETWORK_POLICY, Key("default", "network-lan-open"))["spec"]["egress"]
    policy = api.get(NETWORK_POLICY, Key("default", "firewall-web"))["spec"]
    everywhere = {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}
    for egress in (opened, policy["egress"]):
        blocks = [peer["ipBlock"] for rule in egress for peer in rule["to"] if "ipBlock" in peer]
        assert blocks == [everywhere]
    https = {"protocol": "TCP", "port": 443}
    assert policy["ingress"] == [
        {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [https]}
    ], "the rule with blocks of IPv6 alone opens nothing"


def test_families_are_chosen_or_those_of_the_own_pod() -> None:
    assert Settings().families == {4, 6}
    assert Settings(pod_ips=("10.244.0.7",)).families == {4}
    assert Settings(pod_ips=("10.244.0.7", "fd00::7")).families == {4, 6}
    assert Settings(pod_ips=("10.244.0.7",), ip_families=("IPv4", "IPv6")).families == {4, 6}
    with pytest.raises(ValidationError, match="not an address family"):
        Settings(ip_families=("ipv5",))


def test_protected_addresses_are_a_comma_list() -> None:
    settings = Settings(protected_cidrs="10.96.0.0/12, fd00::/8")

    assert settings.protected_blocks == ("10.96.0.0/12", "fd00::/8")
    assert Settings(protected_cidrs="none").protected_blocks == ()
    with pytest.raises(ValidationError, match="CIDR notation"):
        Settings(protected_cidrs="10.96.0.1/12")
