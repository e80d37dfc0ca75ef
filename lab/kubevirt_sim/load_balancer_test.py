"""The load balancer that is played: it follows, refuses, or announces another address."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lab.kubevirt_sim.load_balancer import MODE, announced
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.kinds import CORE_EVENT, SERVICE, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi

METALLB, CILIUM = "metallb.io/loadBalancerIPs", "lbipam.cilium.io/ips"


@pytest.fixture
async def sim(fake_api: FakeApi) -> AsyncIterator[KubeVirtSim]:
    """Simulate a cluster with MetalLB."""
    async with KubeVirtSim(fake_api.config, load_balancer="MetalLB") as sim:
        yield sim


def build_service(name: str, type_: str = "LoadBalancer", **notes: str) -> Manifest:
    spec = {"type": type_, "ports": [{"port": 80}]}
    return build_object(SERVICE, name, "default", metadata={"annotations": notes}, spec=spec)


async def give(sim: KubeVirtSim, service: Manifest) -> list[str]:
    await sim.client.create(SERVICE, service)
    await sim.converged()
    name = service["metadata"]["name"]
    return announced(await sim.client.get(SERVICE, Key("default", name)))


async def test_service_gets_what_it_asks_for(sim: KubeVirtSim) -> None:
    service = build_service("web", **{METALLB: "203.0.113.7,2001:db8::7"})

    assert await give(sim, service) == ["203.0.113.7", "2001:db8::7"]


async def test_words_of_another_load_balancer_are_not_understood(sim: KubeVirtSim) -> None:
    assert await give(sim, build_service("web", **{CILIUM: "203.0.113.7"})) == ["198.51.100.1"]
    assert await give(sim, build_service("shop")) == ["198.51.100.2"]


async def test_service_of_a_class_is_left_to_another_implementation(sim: KubeVirtSim) -> None:
    service = build_service("web")
    service["spec"]["loadBalancerClass"] = "example.com/other"

    assert await give(sim, service) == []


async def test_service_that_is_refused_has_no_address_and_an_event(sim: KubeVirtSim) -> None:
    notes = {METALLB: "203.0.113.7", MODE: "refuse"}

    assert await give(sim, build_service("web", **notes)) == []

    events = (await sim.client.list(CORE_EVENT, "default")).items
    assert [(each["reason"], each["involvedObject"]["name"]) for each in events] == [
        ("AllocationFailed", "web")
    ]


async def test_other_address_can_be_announced(sim: KubeVirtSim) -> None:
    notes = {METALLB: "203.0.113.7", MODE: "other"}

    assert await give(sim, build_service("web", **notes)) == ["198.51.100.1"]


async def test_service_that_is_no_load_balancer_is_left_alone(sim: KubeVirtSim) -> None:
    notes = {METALLB: "203.0.113.7"}

    assert await give(sim, build_service("web", "ClusterIP", **notes)) == []
