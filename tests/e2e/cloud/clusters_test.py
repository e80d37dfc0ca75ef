"""A cluster of virtual machines on a real cluster; the machines and their guests are simulated."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from lab.kubevirt_sim.deployment import GUEST_PORT, service_name
from libs.common.errors import AlreadyExists
from libs.common.kinds import SECRET, Key, Kind, Manifest, build_object
from libs.contracts.compute import INSTANCE, INSTANCE_SIZE, OPERATION
from libs.contracts.ip_claims import IP_CLAIM, IP_POOL
from libs.contracts.network import NETWORK
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER
from tests.e2e.cloud.conftest import KubeVirt
from tests.e2e.cluster import Cluster, Serve, eventually


@pytest.fixture(scope="module", autouse=True)
def operators(kubevirt: KubeVirt, serve: Serve) -> None:
    """Install the operators once there are guests that play nodes of Kubernetes."""
    if not kubevirt.simulated:
        pytest.skip(
            "the address of a cluster of real guests would have to be routed, which no pool here is"
        )
    # The cluster of the tests has no load balancer.
    serve("ipam", settings__announcement="ExternalIPs")
    for operator in ("network", "compute"):
        serve(operator)
    serve(
        "clusters",
        settings__apiUrl=f"https://{service_name()}:{GUEST_PORT}",
        settings__apiPollSeconds=1,
    )


def build(kind: Kind, name: str, namespace: str, /, **spec: Any) -> Manifest:
    return build_object(kind, name, namespace, spec=spec)


async def test_cluster_comes_up_shrinks_is_recycled_and_goes(cluster: Cluster) -> None:
    namespace = await cluster.make_namespace("clusters")
    pool, edge = f"{namespace}-public", Key(namespace, "edge")
    size = build(INSTANCE_SIZE, "e2e-node", "", cpus=1, memory="1Gi", disk="1Gi")
    with contextlib.suppress(AlreadyExists):
        await cluster.client.create(INSTANCE_SIZE, size)
    addresses = {"family": "IPv4", "addresses": ["192.0.2.8/30"], "reuseGraceSeconds": 0}
    await cluster.client.create(IP_POOL, build(IP_POOL, pool, "", **addresses))
    network = build(NETWORK, "lan", namespace, cidrs=["10.20.0.0/16"], binding="Passt")
    await cluster.client.create(NETWORK, network)
    web = {"name": "web", "count": 2, "size": "e2e-node", "drainSeconds": 5}
    spec = {
        "version": "v1.34.2",
        "image": {"registry": "docker://registry.example.com/node:v1.34.2"},
        "networkRef": {"name": "lan"},
        "controlPlane": {"size": "e2e-node", "endpoint": {"poolName": pool}},
        "pools": [web],
    }
    await cluster.client.create(
        KUBERNETES_CLUSTER, build(KUBERNETES_CLUSTER, "edge", namespace, **spec)
    )

    held = await cluster.wait_ready(KUBERNETES_CLUSTER, edge)
    assert held["status"]["nodes"]["summary"] == "2/2"
    assert held["status"]["endpoint"].startswith("192.0.2.")

    change = {
        "spec": {"pools": [{**web, "count": 1}], "recycle": [{"node": "edge-web-0", "token": "a"}]}
    }
    await cluster.client.patch(KUBERNETES_CLUSTER, edge, change)

    async def recycled() -> bool:
        names = {each["metadata"]["name"] for each in await items(cluster, INSTANCE, namespace)}
        live = await cluster.client.get(INSTANCE, Key(namespace, "edge-web-0"))
        notes = live["metadata"].get("annotations") or {}
        assert notes.get("clusters.slipway.dev/recycled") == "a", notes
        return "edge-web-1" not in names

    await eventually(recycled, "one node has gone, the other has a new disk")
    held = await cluster.wait_ready(KUBERNETES_CLUSTER, edge)
    assert held["status"]["nodes"]["summary"] == "1/1"

    await cluster.delete(KUBERNETES_CLUSTER, edge)
    await cluster.wait_gone(KUBERNETES_CLUSTER, edge)
    for kind in (INSTANCE, IP_CLAIM, OPERATION, SECRET):
        assert await items(cluster, kind, namespace) == []
    await cluster.delete(IP_POOL, Key("", pool))


async def items(cluster: Cluster, kind: Kind, namespace: str) -> list[Manifest]:
    listing = await cluster.client.list(
        kind, namespace, label_selector="clusters.slipway.dev/cluster"
    )
    return list(listing.items)
