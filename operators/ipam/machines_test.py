"""Addresses that follow machines, with the operator and a simulated KubeVirt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lab.kubevirt_sim.instant_balancer import attach_load_balancer
from lab.kubevirt_sim.samples import build_machine, build_migration
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import ENDPOINT_SLICE, POD, SERVICE, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import writes_of_the_operator
from libs.contracts.compute import INSTANCE
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.controller import OPERATOR
from operators.ipam.samples import build_claim, build_instance, build_pool

WEB, SLICE, SERVED = Key("default", "web"), Key("default", "web-ip-v4"), Key("default", "web-ip")
TO_WEB = {"kind": "Instance", "name": "web"}
PORTS = [{"name": "https", "port": 443, "targetPort": 8443}]


@pytest.fixture
async def harness(fake_api: FakeApi, kubevirt_sim: KubeVirtSim) -> AsyncIterator[OperatorHarness]:
    """Run the operator and the simulator, with a pool."""
    for model in RESOURCES:
        fake_api.register(build_crd(model))
    attach_load_balancer(fake_api)
    fake_api.create(build_pool())
    async with OperatorHarness(OPERATOR, fake_api.config) as harness:
        yield harness


async def settle(sim: KubeVirtSim, harness: OperatorHarness) -> None:
    """Let simulator and operator react to each other to the end."""
    await sim.converged()
    await harness.converged()


def binding(api: FakeApi, claim: Key = WEB) -> Any:
    return api.get(IP_CLAIM, claim)["status"]["binding"]


def bound(api: FakeApi, claim: Key = WEB) -> str:
    found = find_condition(api.get(IP_CLAIM, claim), "Bound")
    return f"{found['status']} {found['reason']}" if found else ""


def endpoints(api: FakeApi, key: Key = SLICE) -> list[str]:
    found = api.find(ENDPOINT_SLICE, key) or {}
    return [each["addresses"][0] for each in found.get("endpoints") or ()]


def history(api: FakeApi, mark: int) -> list[list[str]]:
    """Return the endpoint after each write of the slice, in their order."""
    return [
        [each["addresses"][0] for each in (request.body or {}).get("endpoints") or ()]
        for request in writes_of_the_operator(api, mark)
        if request.kind == ENDPOINT_SLICE and isinstance(request.body, dict)
    ]


async def test_address_follows_a_live_migration_in_one_move(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    """Upstream: kubevirt/kubevirt#14320, the address changed with a migration."""
    fake_api.create(build_machine())
    fake_api.create(build_claim(target=TO_WEB, ports=PORTS))
    await settle(kubevirt_sim, harness)
    before = binding(fake_api)
    assert bound(fake_api) == "True Bound"
    assert endpoints(fake_api) == [before["podIP"]]
    assert fake_api.get(SERVICE, SERVED)["spec"]["externalTrafficPolicy"] == "Local"

    mark = fake_api.mark()
    fake_api.create(build_migration())
    await settle(kubevirt_sim, harness)

    after = binding(fake_api)
    migration = fake_api.get(VIRTUAL_MACHINE_INSTANCE_MIGRATION, Key("default", "move"))
    assert migration["status"]["phase"] == "Succeeded"
    assert after["nodeName"] != before["nodeName"]
    assert (after["vmiUID"], after["epoch"]) == (before["vmiUID"], before["epoch"] + 1)
    assert history(fake_api, mark) == [[after["podIP"]]], "one write, and never none"
    assert fake_api.get(ENDPOINT_SLICE, SLICE)["endpoints"][0]["nodeName"] == after["nodeName"]


async def test_machine_that_starts_anew_gets_its_address_back(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    fake_api.create(build_machine())
    fake_api.create(build_claim(target=TO_WEB, ports=PORTS))
    await settle(kubevirt_sim, harness)
    before = binding(fake_api)
    fake_api.delete(VIRTUAL_MACHINE_INSTANCE, WEB)
    await settle(kubevirt_sim, harness)

    after = binding(fake_api)
    assert bound(fake_api) == "True Bound"
    assert after["vmiUID"] != before["vmiUID"]
    assert endpoints(fake_api) == [after["podIP"]]
    pod = fake_api.get(POD, Key("default", after["podName"]))
    assert pod["metadata"]["uid"] == after["podUID"]


async def test_stopped_machine_has_no_endpoint_and_keeps_its_address(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    fake_api.create(build_machine())
    fake_api.create(build_claim(target=TO_WEB, ports=PORTS))
    await settle(kubevirt_sim, harness)
    fake_api.patch(VIRTUAL_MACHINE, WEB, {"spec": {"runStrategy": "Halted"}})
    await settle(kubevirt_sim, harness)

    assert endpoints(fake_api) == []
    assert bound(fake_api) == "False TargetNotRunning"
    assert binding(fake_api)["state"] == "Withdrawn"
    assert fake_api.get(IP_CLAIM, WEB)["status"]["address"] == "203.0.113.0"


async def test_other_target_gets_the_address_after_it_was_taken_off_the_first(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    for name in ("web", "db"):
        fake_api.create(build_machine(name))
    fake_api.create(build_claim(target=TO_WEB, ports=PORTS))
    await settle(kubevirt_sim, harness)
    mark = fake_api.mark()
    fake_api.patch(IP_CLAIM, WEB, {"spec": {"target": {"kind": "Instance", "name": "db"}}})
    await settle(kubevirt_sim, harness)

    there = binding(fake_api)["podIP"]
    assert history(fake_api, mark) == [[], [there]]
    assert binding(fake_api)["target"] == "Instance/db"


async def test_claim_without_ports_is_not_bound_and_shows_where_the_machine_runs(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    fake_api.create(build_machine())
    fake_api.create(build_claim(target=TO_WEB))
    await settle(kubevirt_sim, harness)
    first = binding(fake_api)
    fake_api.create(build_migration())
    await settle(kubevirt_sim, harness)

    assert bound(fake_api) == "False NoPorts"
    assert binding(fake_api)["state"] == "Pending"
    assert binding(fake_api)["epoch"] == first["epoch"] + 1
    assert fake_api.find(SERVICE, SERVED) is None
    mark = fake_api.mark()
    await harness.restart()
    await harness.converged()
    assert writes_of_the_operator(fake_api, mark) == []


async def test_machine_that_is_not_on_the_pod_network_is_not_bound(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    """The pod IP of its launcher reaches no guest: nothing listens there."""
    networks = [{"name": "default", "multus": {"networkName": "lan"}}]
    fake_api.create(build_machine(networks=networks))
    fake_api.create(build_claim(target=TO_WEB, ports=PORTS))
    await settle(kubevirt_sim, harness)

    assert bound(fake_api) == "False NoPodNetwork"
    assert endpoints(fake_api) == []


async def test_address_is_released_after_it_was_taken_off(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    fake_api.create(build_machine())
    claim = build_claim(target=TO_WEB, ports=PORTS, deletionPolicy="RefuseWhileAssigned")
    fake_api.create(claim)
    await settle(kubevirt_sim, harness)
    fake_api.delete(IP_CLAIM, WEB)
    await harness.converged()
    found = find_condition(fake_api.get(IP_CLAIM, WEB), "Terminating")
    assert found is not None
    assert found["reason"] == "StillAssigned"
    assert endpoints(fake_api), "it still leads there"

    mark = fake_api.mark()
    fake_api.patch(IP_CLAIM, WEB, {"spec": {"target": None}})
    await harness.converged()
    kinds = [
        each.kind
        for each in writes_of_the_operator(fake_api, mark)
        if each.verb == "delete" or (each.kind == IP_CLAIM and not each.subresource)
    ]
    assert kinds == [SERVICE, ENDPOINT_SLICE, IP_CLAIM, IP_ALLOCATION]


async def test_target_that_does_not_exist_is_named(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    """Where Instances are served, a machine that no Instance asks for is nobody's target."""
    fake_api.register(build_loose_crd(INSTANCE, None, ("status",)))
    await harness.restart()
    fake_api.create(build_claim(target=TO_WEB, ports=PORTS))

    await harness.eventually(lambda: bound(fake_api) == "False TargetNotFound")
    fake_api.create(build_instance())
    fake_api.create(build_machine())
    await settle(kubevirt_sim, harness)
    await harness.eventually(lambda: bound(fake_api) == "True Bound")
    assert binding(fake_api)["targetUID"] == fake_api.get(INSTANCE, WEB)["metadata"]["uid"]


async def test_service_of_somebody_else_is_left_alone(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    metadata = {"name": "web-ip", "namespace": "default"}
    spec = {"ports": [{"port": 1}]}
    fake_api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    fake_api.create(build_machine())
    fake_api.create(build_claim(target=TO_WEB, ports=PORTS))
    await kubevirt_sim.converged()

    await harness.eventually(lambda: bound(fake_api) == "False NameTaken")
    assert fake_api.get(SERVICE, SERVED)["spec"]["ports"][0]["port"] == 1


async def test_plain_address_needs_the_consent_of_the_pool(
    fake_api: FakeApi, kubevirt_sim: KubeVirtSim, harness: OperatorHarness
) -> None:
    target = {"kind": "Address", "address": "10.0.0.7"}
    fake_api.create(build_claim(target=target, ports=PORTS))
    await harness.converged()
    assert bound(fake_api) == "False TargetNotAllowed"

    fake_api.patch(
        RESOURCES[0].crd_meta.kind, Key("", "public"), {"spec": {"addressTargets": "Allow"}}
    )
    await harness.eventually(lambda: bound(fake_api) == "True Bound")
    assert endpoints(fake_api) == ["10.0.0.7"]
