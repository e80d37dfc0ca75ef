"""A KubernetesCluster of one control plane node and one worker, and what a user does with it."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from libs.common.conditions import find_condition
from libs.common.errors import AlreadyExists
from libs.common.kinds import CONFIG_MAP, SECRET, Key, Manifest, build_object
from libs.common.reading import text_at
from libs.contracts.compute import INSTANCE_SIZE
from libs.contracts.ip_claims import IP_CLAIM, IP_POOL
from libs.contracts.network import NETWORK
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER
from operators.clusters.naming import ADDON_LABEL
from tests.e2e.cluster import Cluster, eventually
from tools.cluster.commands import read
from tools.cluster.docker import find_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.versions import KUBERNETES

CONTROL_PLANE: Final = "edge-control-plane-0"
WORKER: Final = "edge-web-0"
SIZE: Final = "e2e-node"
_PLUGIN: Final = Path(__file__).with_name("bridge-plugin.yaml")


class GuestCluster:
    """The cluster `edge`, asked through its public address by a user on a node of the outer one.

    Args:
        cluster: The outer cluster, where the operators run.
        kind: The same one, for its node.
        key: The KubernetesCluster.
        seconds: How long guests may take for a step.
    """

    def __init__(self, cluster: Cluster, kind: KindCluster, key: Key, seconds: float) -> None:
        """Keep what it acts on."""
        docker = find_docker(kind.cache)
        assert docker is not None, "docker answers"
        self._cluster = cluster
        self._docker = docker
        self._node = f"{kind.name}-control-plane"
        self._seconds = seconds
        self._kubeconfig = ""
        self.key = key

    @classmethod
    async def create(
        cls,
        cluster: Cluster,
        kind: KindCluster,
        *,
        addresses: str,
        image: Mapping[str, str],
        seconds: float,
        disk: Mapping[str, Any] | None = None,
    ) -> Self:
        """Create the KubernetesCluster and what it refers to, in a namespace of its own.

        Args:
            cluster: The outer cluster.
            kind: The same one.
            addresses: Two addresses, for the API of the new cluster and for a Service in it.
            image: Image of the nodes.
            seconds: How long guests may take for a step.
            disk: Settings of the disks of the nodes.
        """
        namespace = await cluster.make_namespace("cluster")
        size = {"cpus": 2, "memory": "2Gi", "disk": "4Gi"}
        with contextlib.suppress(AlreadyExists):
            await cluster.client.create(INSTANCE_SIZE, build_object(INSTANCE_SIZE, SIZE, spec=size))
        pool = {"family": "IPv4", "addresses": [addresses], "reuseGraceSeconds": 0}
        await cluster.client.create(IP_POOL, build_object(IP_POOL, namespace, spec=pool))
        lan = {"cidrs": ["10.245.0.0/16"], "binding": "Passt"}
        await cluster.client.create(NETWORK, build_object(NETWORK, "lan", namespace, spec=lan))
        labels = {"labels": {ADDON_LABEL: "true"}}
        plugin = build_object(CONFIG_MAP, "plugin", namespace, metadata=labels)
        data = {"cni.yaml": _PLUGIN.read_text()}
        await cluster.client.create(CONFIG_MAP, {**plugin, "data": data})
        rest = {"rootDisk": dict(disk)} if disk else {}
        worker = {"name": "web", "count": 1, "size": SIZE, "labels": {"tier": "web"}, **rest}
        spec = {
            "version": KUBERNETES,
            "image": dict(image),
            "networkRef": {"name": "lan"},
            # The guests have the addresses of pods, so the pods of their cluster need other ones.
            "podCidr": "10.45.0.0/16",
            "serviceCidr": "10.46.0.0/16",
            "controlPlane": {"size": SIZE, "endpoint": {"poolName": namespace}, **rest},
            "pools": [worker],
            "loadBalancers": {"poolName": namespace},
            "addons": [{"name": "plugin", "configMapRef": {"name": "plugin"}}],
            "health": {"nodeStartupSeconds": int(seconds), "unhealthySeconds": 1800},
        }
        key = Key(namespace, "edge")
        await cluster.client.create(
            KUBERNETES_CLUSTER, build_object(KUBERNETES_CLUSTER, key.name, namespace, spec=spec)
        )
        return cls(cluster, kind, key, seconds)

    async def wait_ready(self) -> None:
        """Wait until the operator says that the cluster is ready for its current spec."""

        async def is_ready() -> bool:
            held = await self._cluster.client.get(KUBERNETES_CLUSTER, self.key)
            ready = find_condition(held, "Ready") or {}
            current = ready.get("observedGeneration") == held["metadata"]["generation"]
            conditions = held.get("status", {}).get("conditions")
            assert (ready.get("status"), current) == ("True", True), conditions
            return True

        await eventually(is_ready, "the cluster is ready", self._seconds)
        secret = await self._cluster.client.get(SECRET, Key(self.key.namespace, "edge-kubeconfig"))
        self._kubeconfig = base64.b64decode(secret["data"]["value"]).decode()

    async def check_nodes(self) -> None:
        """Check that both machines are nodes, ready, with the labels of their pools."""
        nodes = {each["metadata"]["name"]: each for each in self.get("nodes")["items"]}
        assert set(nodes) == {CONTROL_PLANE, WORKER}
        for node in nodes.values():
            assert (find_condition(node, "Ready") or {}).get("status") == "True", node["status"]
        assert nodes[WORKER]["metadata"]["labels"]["tier"] == "web"

    async def check_pod(self, name: str) -> None:
        """Check that a pod on the worker reaches the Service of the API, and its log the user."""
        run = ("run", name, "--image=busybox", "--image-pull-policy=Never", "--restart=Never")
        connect = (
            "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null >/dev/null 2>&1"
        )
        script = f"until {connect}; do sleep 1; done; echo hello from $HOSTNAME"
        self.kubectl(*run, "--", "sh", "-c", script)

        async def has_ended() -> bool:
            pod = self.get("pod", name)
            assert text_at(pod, "status", "phase") == "Succeeded", pod["status"]
            assert pod["spec"]["nodeName"] == WORKER
            return True

        await eventually(has_ended, f"the pod {name} has run in the cluster", 600.0)
        assert self.kubectl("logs", name) == f"hello from {name}\n"

    async def check_page(self, name: str) -> None:
        """Fetch a page of a pod through the address of a Service, from a node of the outer cluster.

        Then delete the Service, which releases its address.
        """
        run = ("run", name, "--image=busybox", "--image-pull-policy=Never")
        write = f"mkdir /page && echo page of {name} >/page/index.html"
        self.kubectl(*run, "--", "sh", "-c", f"{write} && exec httpd -f -p 8080 -h /page")
        self.kubectl(
            "expose", "pod", name, "--type=LoadBalancer", "--port=80", "--target-port=8080"
        )

        async def is_served() -> bool:
            status = self.get("service", name)["status"]
            shown = status.get("loadBalancer", {}).get("ingress") or []
            assert shown, status
            page = self._fetch(shown[0]["ip"])
            assert page.endswith(f"page of {name}\n"), page
            return True

        await eventually(is_served, f"the page of {name} is served at a public address", 600.0)
        self.kubectl("delete", f"service/{name}", f"pod/{name}", "--grace-period=1")

        async def is_released() -> bool:
            claims = await self._cluster.client.list(IP_CLAIM, self.key.namespace)
            return len(claims.items) == 1

        await eventually(is_released, "only the API has an address", self._seconds)

    def _fetch(self, address: str) -> str:
        """Fetch a page with nothing but bash, which the image of each node has.

        Raises:
            AssertionError: Nobody responded.
        """
        ask = 'exec 3<>"/dev/tcp/$1/80" && printf "GET / HTTP/1.0\\r\\n\\r\\n" >&3 && cat <&3'
        command = [
            "docker",
            "exec",
            self._node,
            "timeout",
            "20",
            "bash",
            "-c",
            ask,
            "bash",
            address,
        ]
        return self._read(command)

    async def remove(self) -> None:
        """Delete the cluster and its pool of addresses, and wait until they are gone."""
        await self._cluster.delete(KUBERNETES_CLUSTER, self.key)
        await self._cluster.wait_gone(KUBERNETES_CLUSTER, self.key)
        await self._cluster.delete(IP_POOL, Key("", self.key.namespace))

    def kubectl(self, *args: str) -> str:
        """Run kubectl through the address of the cluster.

        Raises:
            AssertionError: It failed.
        """
        script = 'umask 077; cat >/tmp/edge.conf; kubectl --kubeconfig /tmp/edge.conf "$@"'
        command = ["docker", "exec", "--interactive", self._node, "sh", "-c", script, "sh", *args]
        return self._read(command, self._kubeconfig)

    def _read(self, command: list[str], stdin: str | None = None) -> str:
        try:
            return read(command, env=self._docker.environment(), seconds=120, stdin=stdin)
        except ToolError as err:
            raise AssertionError(str(err)) from err

    def get(self, *args: str) -> Manifest:
        """Get objects."""
        found: Manifest = json.loads(self.kubectl("get", *args, "--output=json"))
        return found
