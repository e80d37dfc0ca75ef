"""Guests that run kubeadm: clusters begin, nodes join, a restart of the simulator loses none."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest

from lab.kubevirt_sim.guests import GuestClusters
from libs.common.client import Client
from libs.common.kinds import NODE, PVC, SECRET, Manifest, build_object, key_of
from libs.common.reading import holds_at
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import until
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from operators.clusters.bootstrap import Membership, Role, render_user_data
from operators.clusters.samples import ADDRESS, authorities, credentials, parse_cluster
from operators.clusters.workload import Access, KubernetesWorkloads

_HOST: Final = "edge-api.default.svc"
_BOTH: Final = {"edge-control-plane-0": True, "edge-web-0": True}


@pytest.fixture
async def client(fake_api: FakeApi) -> AsyncIterator[Client]:
    """Connect as the simulator does."""
    async with Client(fake_api.config) as client:
        yield client


def give(api: FakeApi, name: str, role: Role) -> Manifest:
    """Give a guest its first settings and a disk; returns its run."""
    cluster = parse_cluster()
    pool = cluster.spec.pools[0] if role is Role.JOIN else None
    member = Membership(cluster, ADDRESS, authorities(), credentials()[1])
    text = render_user_data(member, role, pool)
    data = {"userdata": base64.b64encode(text.encode()).decode()}
    if api.find(SECRET, ("default", f"{name}-user-data")) is not None:
        api.patch(SECRET, ("default", f"{name}-user-data"), {"data": data})
    else:
        api.create(build_object(SECRET, f"{name}-user-data", "default", data=data))
        storage = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
        api.create(build_object(PVC, f"{name}-root", "default", spec=storage))
    volumes: list[Any] = [
        {"name": "root", "dataVolume": {"name": f"{name}-root"}},
        {"name": "init", "cloudInitNoCloud": {"secretRef": {"name": f"{name}-user-data"}}},
    ]
    return build_object(
        VIRTUAL_MACHINE_INSTANCE,
        name,
        "default",
        metadata={"uid": f"{name}-run"},
        spec={"volumes": volumes},
        status={"phase": "Running"},
    )


def simulate(client: Client, guests: Sequence[Manifest]) -> GuestClusters:
    """Simulate clusters of the guests that run."""
    return GuestClusters(client, lambda: guests, "127.0.0.1", 0)


def nodes_of(guests: GuestClusters) -> dict[str, bool]:
    """Return for each Node whether it is ready."""
    nodes = [each for cluster in guests.clusters for each in cluster.api.objects(NODE)]
    return {key_of(each).name: holds_at(each, "Ready") for each in nodes}


async def test_guest_begins_a_cluster_and_others_join(fake_api: FakeApi, client: Client) -> None:
    plane = give(fake_api, "edge-control-plane-0", Role.INIT)
    web = give(fake_api, "edge-web-0", Role.JOIN)
    async with simulate(client, [web, plane]) as guests:
        await until(lambda: nodes_of(guests) == _BOTH, "both have joined")


async def test_nobody_joins_a_cluster_that_has_not_begun(fake_api: FakeApi, client: Client) -> None:
    planes = [give(fake_api, "edge-control-plane-0", Role.JOIN_CONTROL_PLANE)]
    guests = simulate(client, planes)
    await guests.look()

    assert guests.clusters == []


async def test_cluster_is_found_again_on_the_disk_of_its_control_plane(
    fake_api: FakeApi, client: Client
) -> None:
    web = give(fake_api, "edge-web-0", Role.JOIN)
    async with simulate(client, [web, give(fake_api, "edge-control-plane-0", Role.INIT)]) as guests:
        await until(lambda: nodes_of(guests) == _BOTH, "both have joined")
    # By now the user data makes every guest that boots join.
    plane = give(fake_api, "edge-control-plane-0", Role.JOIN_CONTROL_PLANE)
    user = credentials()[0]
    async with simulate(client, [web, plane]) as guests:
        await until(lambda: nodes_of(guests) == _BOTH, "both have joined again")
        url = f"https://127.0.0.1:{guests.port}"
        access = Access(url, _HOST, authorities().ca, user)
        workload = await KubernetesWorkloads(5).look(access)

    assert workload.reachable, workload.message
    assert set(workload.nodes) == {"edge-control-plane-0", "edge-web-0"}
