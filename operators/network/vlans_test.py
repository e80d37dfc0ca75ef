"""A VLAN of a bridge belongs to the first namespace that uses it, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import NAMESPACE, POD, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE
from libs.contracts.multus import MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION
from operators.network.api.v1alpha1 import NETWORK, PROVIDER_NETWORK
from operators.network.controller import OPERATOR
from operators.network.naming import VLANS
from operators.network.network.vlans import find_first
from operators.network.samples import build_attached, build_instance, build_provider

FABRIC = Key("", "fabric")


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    for kind in (NETWORK_ATTACHMENT_DEFINITION, MULTI_NETWORK_POLICY):
        api.register(build_loose_crd(kind, None, ()))
    for name in ("victim", "attacker"):
        api.create(build_object(NAMESPACE, name))
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("victim", "attacker")
    ) as harness:
        yield harness


def build_lan(namespace: str, name: str = "lan", /, **spec: Any) -> Manifest:
    network = build_attached(name, **spec)
    network["metadata"] = {"name": name, "namespace": namespace}
    return network


def attachable(api: FakeApi, namespace: str, name: str = "lan") -> str:
    found = find_condition(api.get(NETWORK, Key(namespace, name)), "Attachable") or {}
    return str(found.get("reason", ""))


def lose(api: FakeApi, *, annotations: bool = True) -> Manifest:
    """Remove everything, and return the ProviderNetwork as a backup tool creates it again."""
    provider = api.get(PROVIDER_NETWORK, FABRIC)
    kept = ("name", "annotations") if annotations else ("name",)
    metadata = {name: provider["metadata"][name] for name in kept}
    for kind in (NETWORK, NETWORK_ATTACHMENT_DEFINITION, PROVIDER_NETWORK):
        for each in api.objects(kind):
            api.vanish(kind, Key(each["metadata"].get("namespace", ""), each["metadata"]["name"]))
    return {**build_provider(), "metadata": metadata}


async def test_second_namespace_gets_no_vlan_that_another_one_has(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_provider())
    api.create(build_lan("victim"))
    api.create(build_lan("victim", "second"))
    await harness.converged()
    api.create(build_provider("twin"))
    api.create(build_lan("attacker"))
    api.create(build_lan("attacker", "twin", providerNetworkRef={"name": "twin"}))
    api.create(build_lan("attacker", "other", vlan=43))
    await harness.converged()

    assert [attachable(api, "victim", name) for name in ("lan", "second")] == ["InPlace"] * 2
    assert attachable(api, "attacker") == "VlanTaken"
    assert attachable(api, "attacker", "twin") == "VlanTaken", "it is the same bridge"
    assert attachable(api, "attacker", "other") == "InPlace"
    assert "victim" not in api.get(PROVIDER_NETWORK, FABRIC)["metadata"]["annotations"][VLANS]

    for name in ("lan", "second"):
        api.delete(NETWORK, Key("victim", name))
        await harness.converged()
        assert (attachable(api, "attacker") == "InPlace") == (name == "second")


async def test_vlan_is_not_released_while_a_machine_may_be_attached_to_it(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """A machine stays on the VLAN that its Network had when it started.

    Otherwise a tenant could leave a machine on a VLAN that the next namespace gets.
    """
    api.create(build_provider())
    api.create(build_lan("attacker"))
    machine = build_instance("vm", network="lan")
    api.create({**machine, "metadata": {"name": "vm", "namespace": "attacker"}})
    await harness.converged()
    api.patch(NETWORK, Key("attacker", "lan"), {"spec": {"vlan": 43}})
    api.create(build_lan("attacker", "second"))
    await harness.converged()
    api.delete(NETWORK, Key("attacker", "second"))
    await harness.converged()
    api.create(build_lan("victim"))
    await harness.converged()
    assert attachable(api, "victim") == "VlanTaken"

    api.delete(INSTANCE, Key("attacker", "vm"))
    api.delete(NETWORK, Key("attacker", "lan"))
    await harness.converged()
    assert attachable(api, "victim") == "InPlace"


@pytest.mark.parametrize("vlan", [43, None])
async def test_former_vlan_is_released_when_a_network_changes_it(
    api: FakeApi, harness: OperatorHarness, vlan: int | None
) -> None:
    api.create(build_provider(untagged="Allowed"))
    for namespace in ("victim", "attacker"):
        api.create(build_lan(namespace))
        await harness.converged()
    assert attachable(api, "attacker") == "VlanTaken"

    machine = build_instance("vm", network="lan")
    api.create({**machine, "metadata": {"name": "vm", "namespace": "victim"}})
    await harness.converged()
    api.patch(NETWORK, Key("victim", "lan"), {"spec": {"vlan": vlan}})
    await harness.converged()
    assert attachable(api, "attacker") == "VlanTaken", "the machine is still on it"

    api.delete(INSTANCE, Key("victim", "vm"))
    await harness.converged()
    assert [attachable(api, each) for each in ("victim", "attacker")] == ["InPlace"] * 2


async def test_vlan_to_which_the_next_machine_would_be_attached_is_not_released(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The attachment stays at the former VLAN while the new one is refused."""
    api.create(build_provider())
    api.create(build_lan("attacker"))
    api.create(build_lan("attacker", "second", vlan=44))
    api.create(build_lan("victim", "other", vlan=43))
    await harness.converged()
    api.patch(NETWORK, Key("attacker", "lan"), {"spec": {"vlan": 43}})
    await harness.converged()
    assert attachable(api, "attacker") == "VlanTaken"

    api.create(build_lan("victim"))
    api.delete(NETWORK, Key("attacker", "second"))
    await harness.converged()
    assert attachable(api, "victim") == "VlanTaken"

    api.delete(NETWORK, Key("attacker", "lan"))
    await harness.converged()
    assert attachable(api, "victim") == "InPlace"


def build_pod(namespace: str) -> Manifest:
    return build_object(POD, "pod", namespace, spec={"containers": [{"name": "a", "image": "b"}]})


@pytest.mark.parametrize("way", ["ended", "deleted"])
async def test_vlan_is_not_released_while_a_pod_may_be_attached_to_it(
    api: FakeApi, harness: OperatorHarness, way: str
) -> None:
    """Any pod can be attached, and change its annotations afterwards."""
    api.create(build_provider())
    api.create(build_lan("attacker"))
    await harness.converged()
    api.create(build_pod("attacker"))
    api.delete(NETWORK, Key("attacker", "lan"))
    api.create(build_lan("victim"))
    await harness.converged()
    assert attachable(api, "victim") == "VlanTaken"
    assert api.find(NETWORK, Key("attacker", "lan")) is None

    if way == "ended":
        api.patch_status(POD, Key("attacker", "pod"), {"phase": "Failed"})
    else:
        api.vanish(POD, Key("attacker", "pod"))
    api.patch(NETWORK, Key("victim", "lan"), {"metadata": {"labels": {"looked": "again"}}})
    await harness.converged()
    assert attachable(api, "victim") == "InPlace"


async def test_vlan_of_a_changed_network_stays_while_a_pod_may_be_attached(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_provider())
    api.create(build_lan("attacker"))
    await harness.converged()
    api.create(build_pod("attacker"))
    api.patch(NETWORK, Key("attacker", "lan"), {"spec": {"vlan": 43}})
    api.create(build_lan("victim"))
    await harness.converged()

    assert attachable(api, "victim") == "VlanTaken"


async def test_orphaned_attachment_attaches_no_further_pod(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_provider())
    api.create(build_lan("attacker"))
    await harness.converged()
    api.delete(NETWORK, Key("attacker", "lan"), propagation="Orphan")
    await harness.converged()
    api.create(build_lan("victim"))
    await harness.converged()

    (left,) = [
        each
        for each in api.objects(NETWORK_ATTACHMENT_DEFINITION)
        if each["metadata"]["namespace"] == "attacker"
    ]
    assert left["spec"]["config"] == "{}"
    assert attachable(api, "victim") == "InPlace"


async def test_attachment_without_a_network_keeps_its_vlan(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """If the tenant orphans it and removes the finalizer, the operator cannot empty it."""
    api.create(build_provider())
    api.create(build_lan("attacker"))
    await harness.converged()
    (held,) = api.objects(NETWORK_ATTACHMENT_DEFINITION)
    orphan = build_object(NETWORK_ATTACHMENT_DEFINITION, "orphan", "attacker", spec=held["spec"])
    api.create(orphan)
    api.delete(NETWORK, Key("attacker", "lan"))
    api.create(build_lan("victim"))
    await harness.converged()

    assert attachable(api, "victim") == "VlanTaken"


async def test_owner_of_a_vlan_survives_a_restore_in_any_order(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_provider())
    api.create(build_lan("victim"))
    await harness.converged()
    api.create(build_lan("attacker"))
    await harness.converged()
    provider = lose(api)
    await harness.converged()
    api.create(build_lan("attacker"))
    api.create(provider)
    await harness.converged()
    api.create(build_lan("victim"))
    await harness.converged()

    assert (attachable(api, "victim"), attachable(api, "attacker")) == ("InPlace", "VlanTaken")


def test_oldest_network_gets_a_vlan_whose_owner_is_not_recorded() -> None:
    """After an upgrade, or if GitOps has recreated the ProviderNetwork."""
    candidates = []
    for namespace, created in (("attacker", "2026-01-02"), ("victim", "2026-01-01")):
        network = build_lan(namespace)
        network["metadata"]["creationTimestamp"] = f"{created}T00:00:00Z"
        candidates.append(network)

    assert find_first(candidates) == Key("victim", "lan")
    candidates[1]["metadata"]["deletionTimestamp"] = "2026-01-03T00:00:00Z"
    assert find_first(candidates) == Key("attacker", "lan")


async def test_administrator_can_share_vlans(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_provider())
    for namespace in ("victim", "attacker"):
        api.create(build_lan(namespace))
        await harness.converged()
    assert attachable(api, "attacker") == "VlanTaken"

    api.patch(PROVIDER_NETWORK, FABRIC, {"spec": {"vlanSharing": "AllNamespaces"}})
    await harness.converged()
    assert (attachable(api, "victim"), attachable(api, "attacker")) == ("InPlace", "InPlace")
