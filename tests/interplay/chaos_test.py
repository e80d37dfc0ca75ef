"""Five machines with an address each, and all kinds of trouble at the same time.

Machines move, reboot and are rebuilt side by side; a node is lost; meanwhile both operators are
killed repeatedly. Each version of each object is checked against the guarantees for addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import pytest

from libs.common.kinds import LEASE, NODE, POD, Key, key_of
from libs.common.reading import text_at
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import FINAL_PHASES, INSTANCE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from operators.compute.samples import build_instance, build_size
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.samples import build_pool
from tests.interplay.cloud import NAMESPACE, Cloud, build_operation, run_cloud

MACHINES: Final = tuple(f"vm-{number}" for number in range(5))
IMAGE: Final = {"url": "https://images.example.com/other.qcow2"}


@pytest.fixture
async def cloud(fake_api: FakeApi) -> AsyncIterator[Cloud]:
    """Run a cloud with five machines, each with an address."""
    async with run_cloud(fake_api) as cloud:
        fake_api.create(build_pool(addresses=["203.0.113.0/29"], reservedAddresses="Use"))
        fake_api.create(build_size())
        for name in MACHINES:
            public = {"mode": "Auto", "poolName": "public", "ports": [{"name": "ssh", "port": 22}]}
            fake_api.create(build_instance(name, publicIP=public))
        await cloud.eventually(lambda: all(map(cloud.is_bound, MACHINES)), "five machines run")
        yield cloud


def free(cloud: Cloud) -> str:
    pool = cloud.api.get(IP_POOL, Key("", "public"))
    return text_at(pool, "status", "capacity", "free")


def ask_for_everything(cloud: Cloud) -> None:
    for operation in (
        build_operation("Migrate", "vm-0"),
        build_operation("Reboot", "vm-0"),
        build_operation("Reboot", "vm-1"),
        build_operation("Rebuild", "vm-2", rebuild={"image": IMAGE}),
        build_operation("Migrate", "vm-2"),
        build_operation("Rebuild", "vm-3"),
        build_operation("Reboot", "vm-3"),
        build_operation("SoftReboot", "vm-4", softReboot={"waitSeconds": 5}),
        build_operation("Migrate", "vm-4"),
    ):
        cloud.api.create(operation)


async def kill_operators(cloud: Cloud) -> int:
    """Kill one operator after the other while there is something to lose; returns how often."""
    times = 0
    while not has_ended(cloud):
        mark = cloud.api.store.version + 15
        await cloud.eventually(partial(has_gone_on, cloud, mark), "things go on", 60)
        await cloud.operators[times % 2].restart(crash=True)
        times += 1
    return times


def has_gone_on(cloud: Cloud, version: int) -> bool:
    return cloud.api.store.version > version or has_ended(cloud)


async def lose_node(cloud: Cloud) -> str:
    """Lose the node of one machine, as the controllers of a cluster do: its pods go with it."""
    run = cloud.api.get(VIRTUAL_MACHINE_INSTANCE, Key(NAMESPACE, "vm-1"))
    node = text_at(run, "status", "nodeName")
    await cloud.sim.silence(node)
    await asyncio.sleep(0.3)
    cloud.api.vanish(NODE, Key("", node))
    for pod in cloud.api.objects(POD, NAMESPACE):
        if text_at(pod, "spec", "nodeName") == node:
            cloud.api.vanish(POD, key_of(pod))
    return node


def has_ended(cloud: Cloud) -> bool:
    phases = cloud.phases(OPERATION)
    return sum(phases[phase] for phase in FINAL_PHASES) == sum(phases.values()) == 9


async def test_every_address_leads_to_its_machine_whatever_happens(cloud: Cloud) -> None:
    addresses = {
        key_of(claim).name: claim["status"]["address"] for claim in cloud.api.objects(IP_CLAIM)
    }
    ask_for_everything(cloud)
    killing = asyncio.create_task(kill_operators(cloud))
    lost = await lose_node(cloud)
    assert await killing >= 5

    await cloud.eventually(lambda: all(map(cloud.is_bound, MACHINES)), "all machines run", 60)
    assert cloud.watcher.faults == []
    now = {key_of(claim).name: claim["status"]["address"] for claim in cloud.api.objects(IP_CLAIM)}
    assert now == addresses, "an address changed"
    assert len(cloud.api.objects(IP_ALLOCATION)) == len(set(addresses.values())) == 5
    assert free(cloud) == "3"
    assert cloud.api.objects(LEASE) == []
    nodes = [
        text_at(run, "status", "nodeName") for run in cloud.api.objects(VIRTUAL_MACHINE_INSTANCE)
    ]
    assert lost not in nodes

    for name in MACHINES:
        cloud.api.delete(INSTANCE, Key(NAMESPACE, name))
    await cloud.eventually(lambda: free(cloud) == "8", "the pool is full again", 60)
    kinds: tuple[Any, ...] = (INSTANCE, VIRTUAL_MACHINE, DATA_VOLUME, IP_CLAIM, IP_ALLOCATION)
    await cloud.eventually(
        lambda: not any(cloud.api.objects(kind) for kind in kinds), "nothing is left", 60
    )
    assert cloud.watcher.faults == []
