"""A Kubernetes cluster of two guests on the real KubeVirt, made by kubeadm in them.

Under software emulation it takes up to an hour, so it is a step of its own.
"""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any, Final

import pytest

from libs.common.conditions import find_condition
from libs.common.errors import AlreadyExists
from libs.common.kinds import CONFIG_MAP, SECRET, Key, build_object
from libs.common.reading import text_at
from libs.contracts.compute import INSTANCE_SIZE
from libs.contracts.ip_claims import IP_POOL
from libs.contracts.network import NETWORK
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER
from operators.clusters.naming import ADDON_LABEL
from tests.e2e.cluster import Cluster, Serve, eventually
from tools.cluster.commands import read
from tools.cluster.docker import find_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress
from tools.cluster.versions import KUBERNETES
from tools.guest.serve import NODE_URL, deploy_node

ADDRESS: Final = "192.0.2.210"
SIZE: Final = "e2e-node"
PLUGIN: Final = Path(__file__).with_name("bridge-plugin.yaml")
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
    cluster: Cluster, kind_cluster: KindCluster, tmp_path: Path
) -> None:
    namespace = await cluster.make_namespace("cluster")
    key = Key(namespace, "edge")
    size = {"cpus": 2, "memory": "2Gi", "disk": "4Gi"}
    with contextlib.suppress(AlreadyExists):
        await cluster.client.create(INSTANCE_SIZE, build_object(INSTANCE_SIZE, SIZE, spec=size))
    pool = {"family": "IPv4", "addresses": [ADDRESS], "reuseGraceSeconds": 0}
    await cluster.client.create(IP_POOL, build_object(IP_POOL, namespace, spec=pool))
    lan = {"cidrs": ["10.245.0.0/16"], "binding": "Passt"}
    await cluster.client.create(NETWORK, build_object(NETWORK, "lan", namespace, spec=lan))
    labels = {"labels": {ADDON_LABEL: "true"}}
    plugin = build_object(CONFIG_MAP, "plugin", namespace, metadata=labels)
    await cluster.client.create(CONFIG_MAP, {**plugin, "data": {"cni.yaml": PLUGIN.read_text()}})

    # CDI does not know how the StorageClass of a kind cluster works.
    disk = {"accessModes": ["ReadWriteOnce"]}
    spec = {
        "version": KUBERNETES,
        "image": {"url": NODE_URL},
        "networkRef": {"name": "lan"},
        # The guests have the addresses of pods, so the pods of their cluster need other ones.
        "podCidr": "10.45.0.0/16",
        "serviceCidr": "10.46.0.0/16",
        "controlPlane": {"size": SIZE, "endpoint": {"poolName": namespace}, "rootDisk": disk},
        "pools": [
            {"name": "web", "count": 1, "size": SIZE, "labels": {"tier": "web"}, "rootDisk": disk}
        ],
        "addons": [{"name": "plugin", "configMapRef": {"name": "plugin"}}],
        "health": {"nodeStartupSeconds": int(SECONDS), "unhealthySeconds": 1800},
    }
    await cluster.client.create(
        KUBERNETES_CLUSTER, build_object(KUBERNETES_CLUSTER, key.name, namespace, spec=spec)
    )

    async def is_ready() -> bool:
        held = await cluster.client.get(KUBERNETES_CLUSTER, key)
        ready = find_condition(held, "Ready") or {}
        assert ready.get("status") == "True", held.get("status", {}).get("conditions")
        return True

    await eventually(is_ready, "the cluster is ready", SECONDS)
    secret = await cluster.client.get(SECRET, Key(namespace, "edge-kubeconfig"))
    inside = Inside(kind_cluster, base64.b64decode(secret["data"]["value"]).decode())
    nodes = {each["metadata"]["name"]: each for each in inside.get("nodes")["items"]}
    assert set(nodes) == {"edge-control-plane-0", "edge-web-0"}
    for node in nodes.values():
        assert (find_condition(node, "Ready") or {}).get("status") == "True", node["status"]
    assert nodes["edge-web-0"]["metadata"]["labels"]["tier"] == "web"

    run = ("run", "hello", "--image=busybox", "--image-pull-policy=Never", "--restart=Never")
    inside.kubectl(*run, "--", "sh", "-c", "echo hello from $HOSTNAME")

    async def has_ended() -> bool:
        pod = inside.get("pod", "hello")
        assert text_at(pod, "status", "phase") == "Succeeded", pod["status"]
        assert pod["spec"]["nodeName"] == "edge-web-0"
        return True

    await eventually(has_ended, "a pod has run in the cluster", 600.0)
    assert inside.kubectl("logs", "hello") == "hello from hello\n"
    await cluster.delete(KUBERNETES_CLUSTER, key)
    await cluster.wait_gone(KUBERNETES_CLUSTER, key)
    await cluster.delete(IP_POOL, Key("", namespace))


class Inside:
    """The new cluster, as a user on a node of the management cluster reaches it."""

    def __init__(self, kind: KindCluster, kubeconfig: str) -> None:
        """Keep the kubeconfig that the operator wrote."""
        docker = find_docker(kind.cache)
        assert docker is not None, "docker answers"
        self._docker = docker
        self._node = f"{kind.name}-control-plane"
        self._kubeconfig = kubeconfig

    def kubectl(self, *args: str) -> str:
        """Run kubectl through the address of the cluster.

        Raises:
            AssertionError: It failed.
        """
        script = 'umask 077; cat >/tmp/edge.conf; kubectl --kubeconfig /tmp/edge.conf "$@"'
        command = ["docker", "exec", "--interactive", self._node, "sh", "-c", script, "sh", *args]
        env = self._docker.environment()
        try:
            return read(command, env=env, seconds=120, stdin=self._kubeconfig)
        except ToolError as err:
            raise AssertionError(str(err)) from err

    def get(self, *args: str) -> dict[str, Any]:
        """Get objects."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *args, "--output=json"))
        return found
