"""Instances without Network stay closed while they move from one Firewall to another."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import NETWORK_POLICY, Key, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE
from libs.contracts.network import FirewallView
from operators.network.api.v1alpha1 import FIREWALL
from operators.network.conformance_test import bare
from operators.network.isolation_test import add_instance, policies_of
from operators.network.samples import build_firewall, build_network
from operators.network.shown import condition

VM: Final = Key("default", "vm")
WEB, DB = Key("default", "web"), Key("default", "db")
CLOSED_WEB, CLOSED_DB = "closed-firewall-web", "closed-firewall-db"


def move(api: FakeApi, firewall: str | None) -> None:
    """Let the Instance name another Firewall."""
    reference = None if firewall is None else {"name": firewall}
    api.patch(INSTANCE, VM, {"spec": {"firewallRef": reference}})


def list_openings(api: FakeApi, name: str) -> list[Manifest]:
    spec = api.get(NETWORK_POLICY, Key("default", name))["spec"]
    return [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]


async def start(api: FakeApi, harness: OperatorHarness, *firewalls: str) -> str:
    """Create firewalls and an Instance without Network that names `web`; return its UID."""
    for name in firewalls:
        api.create(bare(build_firewall(name)))
    uid = add_instance(api, "vm", network="", firewall="web")
    await harness.converged()
    return uid


async def test_policy_that_only_closes_selects_an_instance_without_network(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = await start(api, harness, "web")

    assert policies_of(api, uid=uid) == {"firewall-web", CLOSED_WEB}
    assert list_openings(api, CLOSED_WEB) == []
    assert FirewallView.parse(api.get(FIREWALL, WEB)).protects(uid)


async def test_instance_with_a_network_needs_no_second_policy(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(bare(build_network()))
    api.create(bare(build_firewall()))
    uid = add_instance(api, "vm", firewall="web")
    await harness.converged()

    assert policies_of(api, uid=uid, network="lan") == {"network-lan-deny", "firewall-web"}


async def test_instance_is_closed_while_the_next_firewall_does_not_select_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = await start(api, harness, "web", "db")
    names = (b"firewall-db", CLOSED_DB.encode())
    api.fail(
        status=403,
        times=None,
        where=lambda each: each.writes and any(name in each.raw for name in names),
    )
    move(api, "db")
    await harness.eventually(lambda: "firewall-web" not in policies_of(api, uid=uid))
    await harness.idle()
    assert policies_of(api, uid=uid) == {CLOSED_WEB}
    assert not FirewallView.parse(api.get(FIREWALL, DB)).protects(uid)

    api.faults.clear()
    await harness.eventually(lambda: policies_of(api, uid=uid) == {"firewall-db", CLOSED_DB})
    await harness.converged()
    assert api.find(NETWORK_POLICY, Key("default", CLOSED_WEB)) is None


async def test_instance_is_not_listed_before_what_closes_it_stands(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.fail(
        status=403,
        times=None,
        where=lambda each: each.writes and CLOSED_WEB.encode() in each.raw,
    )
    api.create(bare(build_firewall()))
    uid = add_instance(api, "vm", network="", firewall="web")
    await harness.eventually(
        lambda: condition(api, FIREWALL, WEB, "Ready") == ("False", "WriteRefused")
    )
    assert not FirewallView.parse(api.get(FIREWALL, WEB)).protects(uid)


async def test_firewall_that_does_not_exist_leaves_the_instance_closed(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = await start(api, harness, "web")
    move(api, "db")
    await harness.converged()
    assert policies_of(api, uid=uid) == {CLOSED_WEB}

    api.delete(FIREWALL, WEB)
    await harness.converged()
    assert condition(api, FIREWALL, WEB, "Terminating") == ("True", "InUse")
    assert api.get(FIREWALL, WEB)["status"]["usedBy"] == ["Instance vm"]
    assert policies_of(api, uid=uid) == {CLOSED_WEB}

    api.create(bare(build_firewall("db")))
    await harness.converged()
    assert api.find(FIREWALL, WEB) is None
    assert policies_of(api, uid=uid) == {"firewall-db", CLOSED_DB}


async def test_instance_that_names_no_firewall_any_more_is_an_ordinary_pod(
    api: FakeApi, harness: OperatorHarness
) -> None:
    uid = await start(api, harness, "web")
    move(api, "db")
    await harness.converged()
    move(api, None)
    await harness.converged()
    assert policies_of(api, uid=uid) == set()
    assert api.find(NETWORK_POLICY, Key("default", CLOSED_WEB)) is None


async def test_deletion_of_the_instance_ends_what_closed_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    await start(api, harness, "web")
    move(api, "db")
    await harness.converged()
    api.delete(FIREWALL, WEB)
    api.delete(INSTANCE, VM)
    await harness.converged()
    assert api.find(FIREWALL, WEB) is None
    assert api.objects(NETWORK_POLICY, "default") == []


async def test_foreground_deletion_keeps_what_closes(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """Kubernetes deletes dependents of the owner immediately, whatever finalizer the owner has."""
    uid = await start(api, harness, "web")
    held = api.get(NETWORK_POLICY, Key("default", CLOSED_WEB))["metadata"]["uid"]
    firewall = api.get(FIREWALL, WEB)["metadata"]["uid"]
    await harness.client.delete(FIREWALL, WEB, uid=firewall, propagation="Foreground")
    await harness.converged()
    assert api.get(NETWORK_POLICY, Key("default", CLOSED_WEB))["metadata"]["uid"] == held
    assert policies_of(api, uid=uid) == {"firewall-web", CLOSED_WEB}


async def test_closing_policy_that_somebody_edits_is_corrected(
    api: FakeApi, harness: OperatorHarness
) -> None:
    await start(api, harness, "web")
    key = Key("default", CLOSED_WEB)
    wanted = api.get(NETWORK_POLICY, key)["spec"]
    api.patch(NETWORK_POLICY, key, {"spec": {"ingress": [{}]}})
    await harness.converged()
    assert api.get(NETWORK_POLICY, key)["spec"] == wanted
    api.delete(NETWORK_POLICY, key)
    await harness.converged()
    assert api.get(NETWORK_POLICY, key)["spec"] == wanted
