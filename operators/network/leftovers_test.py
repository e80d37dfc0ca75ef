"""What others edit or leave behind, and names of any length, over HTTP."""

from __future__ import annotations

import pytest

from libs.common.kinds import NETWORK_POLICY, Key, Kind
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE
from libs.contracts.multus import (
    MULTI_NETWORK_POLICY,
    NETWORK_ATTACHMENT_DEFINITION,
    POLICY_FOR,
)
from operators.network.api.v1alpha1 import FIREWALL, NETWORK
from operators.network.conformance_test import bare
from operators.network.samples import (
    build_attached,
    build_firewall,
    build_instance,
    build_network,
    build_provider,
)
from operators.network.shown import condition

LAN, WEB = Key("default", "lan"), Key("default", "web")
DENY, POLICY = Key("default", "network-lan-deny"), Key("default", "firewall-web")


async def test_mark_that_somebody_edits_is_put_right(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The annotation says which interfaces a policy closes."""
    for kind in (NETWORK_ATTACHMENT_DEFINITION, MULTI_NETWORK_POLICY):
        api.register(build_loose_crd(kind, None, ()))
    await harness.restart()
    api.create(build_provider())
    api.create(bare(build_attached()))
    api.create(bare(build_firewall()))
    await harness.converged()

    for key in (DENY, POLICY):
        edit = {"metadata": {"annotations": {POLICY_FOR: "default/other"}}}
        api.patch(MULTI_NETWORK_POLICY, key, edit)
    await harness.converged()
    for key in (DENY, POLICY):
        marks = api.get(MULTI_NETWORK_POLICY, key)["metadata"]["annotations"]
        assert marks[POLICY_FOR] == "default/network-lan"
    assert condition(api, NETWORK, LAN, "Ready") == ("True", "InPlace")


async def test_network_made_anew_finds_what_it_left_behind(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Deleted by force, or restored from a backup: the policy has the mark of another UID."""
    api.create(bare(build_network()))
    await harness.converged()
    await harness.stop()
    api.patch(NETWORK, LAN, {"metadata": {"finalizers": None}})
    api.delete(NETWORK, LAN)
    api.create(bare(build_network()))
    await harness.restart()
    await harness.converged()
    assert condition(api, NETWORK, LAN, "Ready") == ("True", "InPlace")

    api.delete(NETWORK, LAN)
    await harness.converged()
    assert api.objects(NETWORK_POLICY, "default") == []


async def test_long_names_are_told_as_they_are(api: FakeApi, harness: OperatorHarness) -> None:
    name = "a" * 253
    api.create(bare(build_firewall(name)))
    route = {"destination": "10.9.0.0/16", "nextHop": {"instanceRef": {"name": name}}}
    api.create(bare(build_attached(routes=[route])))
    await harness.converged()

    status = api.get(NETWORK, LAN)["status"]
    assert status["usedBy"] == [f"Firewall {name}"]
    assert status["routes"][0]["message"] == f"Instance {name} does not exist"


@pytest.mark.parametrize("kind", [NETWORK, FIREWALL])
async def test_machine_that_the_cache_does_not_know_yet_keeps_what_isolates_it(
    api: FakeApi, harness: OperatorHarness, kind: Kind
) -> None:
    """Nobody looks again at an object that is gone, so the API server is asked."""
    key = LAN if kind == NETWORK else WEB
    api.create(bare(build_network()))
    api.create(bare(build_firewall(networkRef={"name": "other"})))
    await harness.converged()
    api.watches.pause(INSTANCE)
    api.create(bare(build_instance("vm", firewall="web")))
    mark = api.mark()
    api.delete(kind, key)
    await harness.eventually(
        lambda: bool(
            api.requests.select(kind=INSTANCE, since=mark, where=lambda each: each.verb == "list")
        )
    )
    await harness.idle()
    assert api.find(kind, key) is not None
    assert api.find(NETWORK_POLICY, DENY if kind == NETWORK else POLICY) is not None

    api.watches.resume(INSTANCE)
    await harness.converged()
    assert condition(api, kind, key, "Terminating") == ("True", "InUse")
    api.delete(INSTANCE, Key("default", "vm"))
    await harness.converged()
    assert api.find(kind, key) is None


async def test_status_names_the_policies_as_they_are(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network()))
    api.create(bare(build_firewall()))
    await harness.converged()

    policy = api.get(NETWORK_POLICY, POLICY)["metadata"]
    expected = {"name": "firewall-web", "uid": policy["uid"]}
    assert api.get(FIREWALL, WEB)["status"]["policyRef"] == expected
    (held,) = api.get(NETWORK, LAN)["status"]["policyRefs"]
    assert held == {"name": DENY.name, "uid": api.get(NETWORK_POLICY, DENY)["metadata"]["uid"]}
