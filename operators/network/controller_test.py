"""The network operator against an API server over HTTP, as its users meet it."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import EVENT, NETWORK_POLICY, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL, NETWORK_LABEL
from libs.contracts.multus import MULTI_NETWORK_POLICY
from libs.contracts.network import FirewallView, NetworkView
from operators.network.api.v1alpha1 import FIREWALL, NETWORK
from operators.network.conformance_test import bare
from operators.network.samples import (
    build_attached,
    build_firewall,
    build_instance,
    build_network,
    build_rule,
)
from operators.network.shown import condition

LAN, WEB = Key("default", "lan"), Key("default", "web")
DENY, OPEN = Key("default", "network-lan-deny"), Key("default", "network-lan-open")
POLICY = Key("default", "firewall-web")


def selected(api: FakeApi, key: Key) -> list[str]:
    (rule,) = api.get(NETWORK_POLICY, key)["spec"]["podSelector"]["matchExpressions"]
    assert (rule["key"], rule["operator"]) == (INSTANCE_UID_LABEL, "In")
    return list(rule["values"])


def add_instance(api: FakeApi, name: str = "vm", **fields: Any) -> str:
    """Create an instance and return its UID."""
    return str(api.create(bare(build_instance(name, **fields)))["metadata"]["uid"])


def firewall_view(api: FakeApi) -> FirewallView:
    return FirewallView.parse(api.get(FIREWALL, WEB))


def notes(api: FakeApi, reason: str) -> list[str]:
    return [each["note"] for each in api.objects(EVENT, "default") if each["reason"] == reason]


# Closed first.


async def test_network_closes_its_instances_before_any_exists(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network()))
    await harness.converged()

    spec = api.get(NETWORK_POLICY, DENY)["spec"]
    assert spec["podSelector"] == {"matchLabels": {NETWORK_LABEL: "lan"}}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert not spec.get("ingress")
    assert not spec.get("egress")
    assert NetworkView.parse(api.get(NETWORK, LAN)).isolated
    assert api.find(NETWORK_POLICY, OPEN) is None


async def test_instance_is_listed_once_the_policy_stands(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = add_instance(api, firewall="web")
    api.fail(status=403, times=None, where=lambda each: each.kind == NETWORK_POLICY and each.writes)
    api.create(bare(build_firewall()))
    await harness.idle()
    await harness.eventually(
        lambda: condition(api, FIREWALL, WEB, "Ready") == ("False", "WriteRefused")
    )
    assert not firewall_view(api).protects(uid)

    api.faults.clear()
    await harness.eventually(lambda: firewall_view(api).protects(uid))
    assert selected(api, POLICY) == [uid]


async def test_instance_without_firewall_is_open_as_far_as_the_network_says(
    api: FakeApi, harness: OperatorHarness
) -> None:
    plain = add_instance(api, "plain")
    add_instance(api, "guarded", firewall="web")
    api.create(bare(build_network(isolation="Network")))
    await harness.converged()

    assert selected(api, OPEN) == [plain]
    (entrance,) = api.get(NETWORK_POLICY, OPEN)["spec"]["ingress"]
    (peer,) = entrance["from"]
    assert peer["podSelector"] == {"matchLabels": {NETWORK_LABEL: "lan"}}

    api.patch(NETWORK, LAN, {"spec": {"isolation": "None"}})
    await harness.converged()
    assert api.get(NETWORK_POLICY, OPEN)["spec"]["ingress"] == [{}]


async def test_instance_that_changes_its_firewall_is_listed_when_nothing_else_opens_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network(isolation="None")))
    api.create(bare(build_firewall()))
    uid = add_instance(api, "vm")
    await harness.converged()
    assert selected(api, OPEN) == [uid]

    api.fail(status=403, times=None, where=lambda each: each.writes and each.key == OPEN)
    api.patch(INSTANCE, Key("default", "vm"), {"spec": {"firewallRef": {"name": "web"}}})
    await harness.eventually(lambda: selected(api, POLICY) == [uid])
    await harness.eventually(
        lambda: condition(api, FIREWALL, WEB, "Ready") == ("False", "OpenElsewhere")
    )
    assert not firewall_view(api).protects(uid)

    api.faults.clear()
    await harness.eventually(lambda: firewall_view(api).protects(uid))
    await harness.converged()
    assert api.find(NETWORK_POLICY, OPEN) is None


# What rules become.


async def test_change_of_a_rule_is_one_write_of_one_policy(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network()))
    api.create(bare(build_firewall("web", build_rule("ssh", ports=[22]))))
    await harness.converged()
    before = api.get(FIREWALL, WEB)["status"]["appliedHash"]
    mark = api.mark()

    api.patch(FIREWALL, WEB, {"spec": {"rules": [build_rule("web", ports=[443])]}})
    await harness.converged()

    ports = [{"protocol": "TCP", "port": 443}]
    assert api.get(NETWORK_POLICY, POLICY)["spec"]["ingress"] == [{"ports": ports}]
    assert api.get(FIREWALL, WEB)["status"]["appliedHash"] != before
    writes = [each for each in api.writes(mark) if each.kind == NETWORK_POLICY and each.changed]
    # The first apply after a create takes over the fields of the create.
    assert {each.key for each in writes} == {POLICY}
    assert len(writes) <= 2


async def test_rule_that_cannot_be_said_is_told_and_the_rest_is_in_force(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = add_instance(api, firewall="web")
    api.create(bare(build_network()))
    rules = [build_rule("ssh", ports=[22]), build_rule("ping", protocol="ICMP")]
    api.create(bare(build_firewall("web", *rules)))
    await harness.converged()

    assert condition(api, FIREWALL, WEB, "Enforced") == ("False", "Unenforceable")
    assert condition(api, FIREWALL, WEB, "Ready") == ("True", "Unenforceable")
    (reported,) = api.get(FIREWALL, WEB)["status"]["unenforceable"]
    assert (reported["rule"], reported["reason"]) == ("ping", "ProtocolUndefined")
    assert firewall_view(api).protects(uid)


async def test_spec_that_slipped_past_the_server_keeps_what_was_in_force(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network()))
    api.create(bare(build_firewall("web", build_rule("ssh", ports=[22]))))
    await harness.converged()
    held = api.get(NETWORK_POLICY, POLICY)["spec"]

    api.settings.check_rules = False
    api.patch(FIREWALL, WEB, {"spec": {"rules": [build_rule("ssh", cidrs=["10.0.0.1/8"])]}})
    await harness.converged()

    found = find_condition(api.get(FIREWALL, WEB), "Ready") or {}
    assert (found["status"], found["reason"]) == ("False", "InvalidSpec")
    assert "spec.rules[0].cidrs[0]" in found["message"]
    assert api.get(NETWORK_POLICY, POLICY)["spec"] == held


# What others do.


@pytest.mark.parametrize(
    "edit",
    [
        {"ingress": [{}]},
        {"egress": []},
        {"podSelector": {"matchLabels": {"app": "x"}}},
        {"ingress": [{"ports": [{"protocol": "TCP", "port": 22, "endPort": 60000}]}]},
    ],
)
async def test_policy_that_somebody_edits_is_put_right(
    api: FakeApi, harness: OperatorHarness, edit: Manifest
) -> None:
    """Fields that others add open or close something too, so more is not as good as equal."""
    api.create(bare(build_firewall("web", build_rule("ssh", ports=[22]))))
    await harness.converged()
    wanted = api.get(NETWORK_POLICY, POLICY)["spec"]

    api.patch(NETWORK_POLICY, POLICY, {"spec": edit})
    await harness.converged()

    assert api.get(NETWORK_POLICY, POLICY)["spec"] == wanted
    assert harness.metric("network_repairs_total", kind="NetworkPolicy") == 1
    await harness.eventually(lambda: bool(notes(api, "Repaired")))


async def test_policy_of_somebody_else_is_left_alone_and_named(
    api: FakeApi, harness: OperatorHarness
) -> None:
    foreign: Manifest = build_object(
        NETWORK_POLICY, POLICY.name, "default", spec={"podSelector": {}, "policyTypes": ["Ingress"]}
    )
    api.create(foreign)
    api.create(bare(build_firewall()))
    await harness.eventually(
        lambda: condition(api, FIREWALL, WEB, "Ready") == ("False", "NameTaken")
    )

    assert api.get(NETWORK_POLICY, POLICY)["spec"]["policyTypes"] == ["Ingress"]


async def test_deletion_waits_for_those_who_use_it_and_keeps_them_closed(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = add_instance(api, firewall="web")
    api.create(bare(build_network()))
    api.create(bare(build_firewall()))
    await harness.converged()
    api.delete(NETWORK, LAN)
    api.delete(FIREWALL, WEB)
    await harness.converged()

    assert condition(api, FIREWALL, WEB, "Terminating") == ("True", "InUse")
    assert api.get(FIREWALL, WEB)["status"]["usedBy"] == ["Instance vm"]
    assert api.get(NETWORK, LAN)["status"]["usedBy"] == ["Firewall web", "Instance vm"]
    api.delete(NETWORK_POLICY, POLICY)
    await harness.converged()
    assert selected(api, POLICY) == [uid], "what is in use is made again, also while it goes"

    api.delete(INSTANCE, Key("default", "vm"))
    await harness.converged()
    assert api.find(FIREWALL, WEB) is None
    assert api.find(NETWORK, LAN) is None
    assert api.objects(NETWORK_POLICY, "default") == []


async def test_foreground_deletion_does_not_open_what_is_in_use(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Kubernetes deletes dependents of the owner immediately; the isolating policy is none."""
    uid = add_instance(api, firewall="web")
    for manifest in (bare(build_network()), bare(build_firewall())):
        api.create(manifest)
    await harness.converged()
    deny = api.get(NETWORK_POLICY, DENY)["metadata"]["uid"]

    for kind, key in ((NETWORK, LAN), (FIREWALL, WEB)):
        held = api.get(kind, key)["metadata"]["uid"]
        await harness.client.delete(kind, key, uid=held, propagation="Foreground")
    await harness.converged()

    assert api.get(NETWORK_POLICY, DENY)["metadata"]["uid"] == deny
    assert selected(api, POLICY) == [uid], "made again"
    assert api.get(FIREWALL, WEB)["status"]["usedBy"] == ["Instance vm"]


# Machines on other networks.


async def test_firewall_protects_no_machine_on_a_network_that_its_policy_does_not_reach(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """A machine starts on the word of its firewall alone, and here nothing closes its interface."""
    attached = add_instance(api, "attached", network="bridged", firewall="web")
    plain = add_instance(api, "plain", network="", firewall="web")
    api.create(bare(build_network()))
    api.create(bare(build_firewall()))
    await harness.converged()
    assert not firewall_view(api).protects(attached), "nobody knows how its network is carried"
    assert firewall_view(api).protects(plain)

    api.create(bare(build_attached("bridged")))
    await harness.converged()
    assert not firewall_view(api).protects(attached)
    assert condition(api, FIREWALL, WEB, "Ready") == ("False", "OtherNetwork")

    # Nor does the policy of a network that Multus attaches reach the network of pods.
    api.register(build_loose_crd(MULTI_NETWORK_POLICY, None, ()))
    api.create(bare(build_firewall("inner", networkRef={"name": "bridged"})))
    moved = {"spec": {"firewallRef": {"name": "inner"}}}
    for name in ("attached", "plain"):
        api.patch(INSTANCE, Key("default", name), moved)
    inner = Key("default", "inner")

    def is_listed() -> bool:
        return FirewallView.parse(api.get(FIREWALL, inner)).protects(attached)

    await harness.eventually(is_listed)
    await harness.converged()
    assert not FirewallView.parse(api.get(FIREWALL, inner)).protects(plain)


async def test_network_that_comes_after_its_instances_is_heard_of_by_their_firewall(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = add_instance(api, network="dmz", firewall="web")
    api.create(bare(build_network()))
    api.create(bare(build_firewall()))
    await harness.converged()
    assert not firewall_view(api).protects(uid)

    api.create(bare(build_network("dmz")))
    await harness.converged()
    assert firewall_view(api).protects(uid), "both are the network of pods"
