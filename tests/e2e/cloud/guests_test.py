"""A Kubernetes cluster that kubeadm makes in containers, by the user data of the operator.

KubeVirt is simulated; the guests of its machines are containers with systemd and cloud-init, so
kubeadm, etcd, kubelets and the network between them are real, and so is the way to them through
the public addresses of the API and of a Service of type LoadBalancer. Containers are no pods, so
Firewalls do not apply to them: `tests/interplay/cluster_packets_test.py` shows that one opens the
port of a Service and no other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from lab.guest.container import ensure_container_node
from lab.kubevirt_sim.containers import ContainerGuests
from libs.common.kinds import Key, build_object
from libs.contracts.compute import OPERATION
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER
from tests.e2e.cloud.conftest import KubeVirt
from tests.e2e.cluster import Cluster, Serve, eventually
from tests.e2e.guest_cluster import CONTROL_PLANE, WORKER, GuestCluster
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress

ADDRESSES: Final = "192.0.2.211-192.0.2.212"
SECONDS: Final = 600.0
"""Longest time for a step; two containers become nodes in about a minute on two idle cores."""


@pytest.fixture(scope="module", autouse=True)
def operators(kubevirt: KubeVirt, serve: Serve) -> None:
    """Install the operators; they ask the API of the new cluster itself, which answers."""
    if not kubevirt.simulated:
        pytest.skip("KubeVirt is real here: tests/e2e/kubevirt/cluster_test.py has real guests")
    serve("ipam", settings__announcement="ExternalIPs")
    for operator in ("network", "compute"):
        serve(operator)
    serve("clusters", settings__apiPollSeconds=1)


@pytest.fixture
async def guests(cluster: Cluster, kind_cluster: KindCluster) -> AsyncIterator[ContainerGuests]:
    """Run the guests of all machines as containers."""
    progress = open_progress("guest-node", kind_cluster.cache)
    docker = ensure_docker(progress, kind_cluster.cache)
    image = ensure_container_node(docker, progress, kind_cluster.cache)
    node = f"{kind_cluster.name}-control-plane"
    async with ContainerGuests(cluster.client, docker, image, node) as guests:
        yield guests


async def test_machines_become_a_cluster_that_outlives_restarts_and_a_new_disk(
    cluster: Cluster, kind_cluster: KindCluster, guests: ContainerGuests
) -> None:
    image = {"registry": "docker://registry.example.com/node:v1"}
    edge = await GuestCluster.create(
        cluster, kind_cluster, addresses=ADDRESSES, image=image, seconds=SECONDS
    )
    await edge.wait_ready()
    await edge.check_nodes()
    await edge.check_pod("hello")
    await edge.check_page("page")

    # Certificates are renewed before they expire.
    before = await read_certificate(guests)
    await guests.run_inside(CONTROL_PLANE, "systemctl", "start", "slipway-renew.service")

    async def is_renewed() -> bool:
        serial = await read_certificate(guests)
        return serial not in ("", before) and bool(edge.get("nodes")["items"])

    await eventually(is_renewed, "the API has a new certificate and answers", SECONDS)

    # The control plane restarts with its disk.
    await reboot(cluster, Key(edge.key.namespace, CONTROL_PLANE))

    async def remembers() -> bool:
        return bool(edge.get("pod", "hello")["spec"]["nodeName"] == WORKER)

    await eventually(remembers, "the API answers again, and knows the pod", SECONDS)

    # A worker gets an empty disk and joins again.
    boot = edge.get("node", WORKER)["status"]["nodeInfo"]["machineID"]
    change = {"spec": {"recycle": [{"node": WORKER, "token": "a"}]}}
    await cluster.client.patch(KUBERNETES_CLUSTER, edge.key, change)

    async def has_joined_again() -> bool:
        return bool(edge.get("node", WORKER)["status"]["nodeInfo"]["machineID"] != boot)

    await eventually(has_joined_again, "the worker is another installation", SECONDS)
    await edge.wait_ready()
    await edge.check_nodes()
    await edge.check_pod("again")
    await edge.check_page("other-page")
    await edge.remove()


async def read_certificate(guests: ContainerGuests) -> str:
    """Return the serial number of the certificate of the API server; empty if it is down."""
    show = "openssl s_client -connect 127.0.0.1:6443 </dev/null 2>/dev/null"
    read = f"{show} | openssl x509 -noout -serial 2>/dev/null || true"
    return await guests.run_inside(CONTROL_PLANE, "sh", "-c", read)


async def reboot(cluster: Cluster, key: Key) -> None:
    """Reboot a machine with an Operation."""
    name = f"reboot-{key.name}"
    spec = {"targetRef": {"name": key.name}, "type": "Reboot"}
    await cluster.client.create(OPERATION, build_object(OPERATION, name, key.namespace, spec=spec))
    await cluster.wait_ready(OPERATION, Key(key.namespace, name))
