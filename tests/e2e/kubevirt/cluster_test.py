"""A Kubernetes cluster of two guests on the real KubeVirt, made by kubeadm in them.

Under software emulation it takes up to an hour, so it is a step of its own.
"""

from __future__ import annotations

from typing import Final

import pytest

from lab.guest.serve import NODE_URL, deploy_node
from tests.e2e.cluster import Cluster, Serve
from tests.e2e.guest_cluster import GuestCluster
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress

ADDRESSES: Final = "192.0.2.213-192.0.2.214"
SECONDS: Final = 5400.0
"""Longest time for two guests to become nodes under emulation on two cores."""


@pytest.fixture(scope="module", autouse=True)
def more_operators(operators: None, serve: Serve) -> None:
    """Install the operators that a cluster needs besides ipam and compute."""
    serve("network")
    serve("clusters")


@pytest.fixture(scope="module", autouse=True)
def node_image(kind_cluster: KindCluster) -> None:
    """Serve the disk of a node in the cluster."""
    deploy_node(kind_cluster, open_progress("node-guest"))


async def test_two_guests_become_a_cluster_that_runs_a_pod(
    cluster: Cluster, kind_cluster: KindCluster
) -> None:
    edge = await GuestCluster.create(
        cluster,
        kind_cluster,
        addresses=ADDRESSES,
        image={"url": NODE_URL},
        seconds=SECONDS,
        # CDI does not know how the StorageClass of a kind cluster works.
        disk={"accessModes": ["ReadWriteOnce"]},
    )
    await edge.wait_ready()

    await edge.check_nodes()
    await edge.check_pod("hello")
    await edge.remove()
