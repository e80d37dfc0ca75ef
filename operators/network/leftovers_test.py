"""What others edit or leave behind, and names of any length, over HTTP."""

from __future__ import annotations

from libs.common.contracts.multus import (
    MULTI_NETWORK_POLICY,
    NETWORK_ATTACHMENT_DEFINITION,
    POLICY_FOR,
)
from libs.common.kinds import NETWORK_POLICY, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from operators.network.api.v1alpha1 import NETWORK
from operators.network.conformance_test import bare
from operators.network.samples import build_firewall, build_network
from operators.network.shown import condition

LAN = Key("default", "lan")
DENY, POLICY = Key("default", "network-lan-deny"), Key("default", "firewall-web")


async def test_mark_that_somebody_edits_is_put_right(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The annotation says which interfaces a policy closes."""
    for kind in (NETWORK_ATTACHMENT_DEFINITION, MULTI_NETWORK_POLICY):
        api.register(build_loose_crd(kind, None, ()))
    await harness.restart()
    api.create(bare(build_network(backend="Multus", bridge="br0")))
    api.create(bare(build_firewall()))
    await harness.settled()

    for key in (DENY, POLICY):
        edit = {"metadata": {"annotations": {POLICY_FOR: "default/other"}}}
        api.patch(MULTI_NETWORK_POLICY, key, edit)
    await harness.settled()
    for key in (DENY, POLICY):
        marks = api.get(MULTI_NETWORK_POLICY, key)["metadata"]["annotations"]
        assert marks[POLICY_FOR] == "default/network-lan"
    assert condition(api, NETWORK, LAN, "Ready") == ("True", "InPlace")


async def test_network_made_anew_finds_what_it_left_behind(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Deleted by force, or restored from a backup: the policy has the mark of another UID."""
    api.create(bare(build_network()))
    await harness.settled()
    await harness.stop()
    api.patch(NETWORK, LAN, {"metadata": {"finalizers": None}})
    api.delete(NETWORK, LAN)
    api.create(bare(build_network()))
    await harness.restart()
    await harness.settled()
    assert condition(api, NETWORK, LAN, "Ready") == ("True", "InPlace")

    api.delete(NETWORK, LAN)
    await harness.settled()
    assert api.objects(NETWORK_POLICY, "default") == []


async def test_long_names_are_told_as_they_are(api: FakeApi, harness: OperatorHarness) -> None:
    name = "a" * 253
    api.create(bare(build_firewall(name)))
    route = {"destination": "10.9.0.0/16", "nextHop": {"instanceRef": {"name": name}}}
    api.create(bare(build_network(routes=[route])))
    await harness.settled()

    status = api.get(NETWORK, LAN)["status"]
    assert status["usedBy"] == [f"Firewall {name}"]
    assert status["routes"][0]["message"] == f"Instance {name} does not exist"
