"""Packets from outside reach a page in a cluster of machines, through the address of its Service.

The management cluster is a real kube-apiserver with two nodes (`lab.py`), on which kube-proxy and
kube-router run. ipam, network and clusters run in this process. KubeVirt does not take part: the
test plays compute, and a pod stands for each machine. The API of the managed cluster is simulated
(`lab.kubevirt_sim.guests`), and a program that listens on the node port stands for kube-proxy and
the page in the guest. Without kube-router the tests are skipped (`packets_test.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from lab.kubevirt_sim.guests import GuestClusters
from libs.common.client import Client
from libs.common.conditions import find_condition, render_time
from libs.common.kinds import POD, SERVICE, Key, Manifest, build_object, key_of, uid_of
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL, NETWORK_LABEL, OPERATION
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER, KubernetesCluster
from operators.clusters.controller import OPERATOR as CLUSTERS
from operators.clusters.naming import user_data_name
from operators.clusters.samples import NOW
from operators.ipam.api import RESOURCES as IPAM_RESOURCES
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR as IPAM
from operators.network.api import RESOURCES as NETWORK_RESOURCES
from operators.network.api.v1alpha1 import NETWORK
from operators.network.controller import OPERATOR as NETWORKS
from tests.interplay.lab import Lab

_PATIENCE: Final = 240.0
"""Seconds that a change may take to reach the packets."""
_PAGE, _OTHER = 30080, 30081
"""Node port of the page, and a port of which no Service tells."""
_ADDRESSES: Final = "203.0.113.0/28"


@dataclass
class Compute:
    """Play compute: a pod of the lab stands for the machine of each Instance."""

    client: Client
    namespace: str
    lab: Lab
    guests: GuestClusters
    machines: dict[str, Manifest] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    async def play(self) -> None:
        """Run the machines of new Instances."""
        while True:
            for each in (await self.client.list(INSTANCE, self.namespace)).items:
                if uid_of(each) not in self.machines:
                    await self._run(each)
            await asyncio.sleep(0.1)

    async def _run(self, instance: Manifest) -> None:
        name, node = key_of(instance).name, f"node-{len(self.machines) % 2 + 1}"
        labels = {INSTANCE_UID_LABEL: uid_of(instance), NETWORK_LABEL: "lan"}
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        pod = build_object(POD, name, self.namespace, metadata={"labels": labels}, spec=spec)
        await self.client.create(POD, pod)
        ports = (_PAGE, _OTHER)
        four, _ = await asyncio.to_thread(self.lab.add_pod, f"{self.namespace}/{name}", node, ports)
        self.addresses[name] = four
        host, ips = self.lab.address_of(node), [{"ip": four}]
        status = {"phase": "Running", "hostIP": host, "podIP": four, "podIPs": ips}
        key = Key(self.namespace, name)
        await self.client.patch(POD, key, {"status": status}, subresource="status")
        ready = {"type": "Ready", "status": "True", "reason": "Running", "message": ""}
        seen = {
            "vmiUID": f"{name}-vmi",
            "privateIP": four,
            "conditions": [{**ready, "lastTransitionTime": render_time(NOW)}],
        }
        await self.client.patch(INSTANCE, key, {"status": seen}, subresource="status")
        settings = {"secretRef": {"name": user_data_name(name)}}
        self.machines[uid_of(instance)] = {
            "metadata": {"name": name, "namespace": self.namespace, "uid": f"{name}-vmi"},
            "spec": {"volumes": [{"name": "cloud-init", "cloudInitNoCloud": settings}]},
            "status": {"phase": "Running"},
        }

    async def answers(self, address: str, port: int) -> str:
        """Connect from outside; return who answered whom, or nothing."""
        return await asyncio.to_thread(self.lab.ask, "", address, port)

    async def becomes(self, reachable: bool, address: str, port: int) -> None:
        """Wait until a host outside can connect, or cannot."""
        async with asyncio.timeout(_PATIENCE):
            while bool(await self.answers(address, port)) is not reachable:
                await asyncio.sleep(0.1)


async def until[T](probe: Callable[[], T]) -> T:
    """Wait until a probe returns something true."""
    async with asyncio.timeout(_PATIENCE):
        while not (found := probe()):
            await asyncio.sleep(0.1)
        return found


@pytest.fixture(scope="module")
def proxied(plugin: Lab, kube_apiserver: ControlPlane, tmp_path_factory: Any) -> Lab:
    """Prepare kube-proxy on both nodes, and send packets to public addresses to the first one."""
    folder: Path = tmp_path_factory.mktemp("kube-proxy")
    plugin.prepare_proxies(kube_apiserver.write_kubeconfig(folder / "kubeconfig"), folder)
    plugin.route_outside(_ADDRESSES, "node-1")
    return plugin


@pytest.fixture
async def compute(
    proxied: Lab, kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> AsyncIterator[Compute]:
    """Run ipam, network and clusters, and play compute."""
    loose = [build_loose_crd(each, None, ("status",)) for each in (INSTANCE, OPERATION)]
    await serve(kube_client, *IPAM_RESOURCES, *NETWORK_RESOURCES, KubernetesCluster, *loose)
    await proxied.register(kube_client)
    held: list[Compute] = []
    guests = GuestClusters(
        kube_client, lambda: list(held[0].machines.values()) if held else [], "127.0.0.1", 0
    )
    config = kube_apiserver.config
    watched: dict[str, Any] = {"watch_namespaces": (kube_namespace,)}
    async with guests:
        url = f"https://127.0.0.1:{guests.port}"
        async with (
            OperatorHarness(IPAM, config, announcement="ExternalIPs", **watched),
            OperatorHarness(NETWORKS, config, **watched),
            OperatorHarness(CLUSTERS, config, api_url=url, api_poll_seconds=1, **watched),
        ):
            held.append(Compute(kube_client, kube_namespace, proxied, guests))
            task = asyncio.create_task(held[0].play())
            yield held[0]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.apiserver
async def test_page_in_a_cluster_answers_at_the_address_of_its_service_and_nothing_else_does(
    compute: Compute,
) -> None:
    client, namespace = compute.client, compute.namespace
    realm = namespace.replace("-", "")[-20:]
    pool = {"family": "IPv4", "addresses": [_ADDRESSES], "realm": realm, "reuseGraceSeconds": 0}
    await client.create(IP_POOL, build_object(IP_POOL, namespace, spec=pool))
    lan = {"cidrs": ["10.10.0.0/16"], "binding": "Passt"}
    await client.create(NETWORK, build_object(NETWORK, "lan", namespace, spec=lan))
    spec = {
        "version": "v1.34.2",
        "image": {"registry": "docker://registry.example.com/node:v1.34.2"},
        "networkRef": {"name": "lan"},
        "controlPlane": {"size": "small", "endpoint": {"poolName": namespace}},
        "pools": [{"name": "web", "count": 1, "size": "small"}],
        "loadBalancers": {"poolName": namespace},
    }
    edge = build_object(KUBERNETES_CLUSTER, "edge", namespace, spec=spec)
    await client.create(KUBERNETES_CLUSTER, edge)
    worker = await until(lambda: compute.addresses.get("edge-web-0", ""))
    await compute.becomes(False, worker, _PAGE)

    (guest,) = compute.guests.clusters
    ports = [{"name": "http", "port": 80, "nodePort": _PAGE}]
    service = build_object(
        SERVICE, "shop", "default", spec={"type": "LoadBalancer", "ports": ports}
    )
    guest.api.create(service)

    def ingress() -> str:
        status = guest.api.get(SERVICE, Key("default", "shop")).get("status") or {}
        shown = status.get("loadBalancer", {}).get("ingress") or [{"ip": ""}]
        return str(shown[0]["ip"])

    address = await until(ingress)
    await compute.becomes(True, address, 80)
    answer = await compute.answers(address, 80)
    assert answer.startswith(f"{namespace}/edge-web-0 "), answer
    assert not await compute.answers(worker, _OTHER), "the Firewall opens the port of the page only"
    held = await client.get(KUBERNETES_CLUSTER, Key(namespace, "edge"))
    assert (find_condition(held, "LoadBalancersReady") or {}).get("status") == "True"

    guest.api.delete(SERVICE, Key("default", "shop"))
    await compute.becomes(False, address, 80)
    await compute.becomes(False, worker, _PAGE)
