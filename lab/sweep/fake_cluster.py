"""A fake API of a cluster that the clusters operator created."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from lab.sweep.external_system import Reply, Request, changes_something
from libs.common.client import Client
from libs.common.kinds import (
    CONFIG_MAP,
    NODE,
    POD,
    Manifest,
    build_object,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.reading import holds_at, text_at
from libs.contracts.compute import INSTANCE
from operators.clusters.api.v1alpha1 import CONTROL_PLANE
from operators.clusters.naming import POOL_LABEL

_MOMENT: Final = "2026-01-31T12:00:00Z"
READY: Final = {
    "type": "Ready",
    "status": "True",
    "reason": "Running",
    "lastTransitionTime": _MOMENT,
}
"""Condition of ready objects."""
_NODES: Final = NODE.path()
_PODS: Final = POD.path()
_SYSTEM_PODS: Final = POD.path("kube-system")
_MAPS: Final = CONFIG_MAP.path("kube-system")
_PROXY: Final = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"
_CONFIG: Final = "kubeadm-config"


class FakeCluster:
    """A fake API of the new cluster: its Nodes, and a pod on each node of a pool.

    A guest joins once for each disk that its machine has, with the version of `kubeadm-config`, as
    if its image had that version. Nodes of the control plane are members of etcd, which is asked
    through the proxy of the API server, without TLS.

    Args:
        trial: Namespace of the trial.
        client: Connection with all rights, to see which machines run.
    """

    def __init__(self, trial: str, client: Client) -> None:
        """Initialize without nodes."""
        self._trial = trial
        self._client = client
        self._nodes: dict[str, Manifest] = {}
        self._pods: dict[str, str] = {}
        self._disks: dict[str, str] = {}
        self._members: dict[str, str] = {}
        self._added = 0
        self._maps: dict[str, Manifest] = {}
        self._proxy = ""

    async def answer(self, request: Request) -> Reply:
        """Respond to a request, without authentication, because there is no TLS."""
        await self._let_join()
        path, _, name = request.path.rpartition("/")
        match request.method, request.path:
            case "GET", found if found == _NODES:
                return _list(self._nodes.values())
            case "GET", found if found == _PODS:
                node = request.query.get("fieldSelector", "").removeprefix("spec.nodeName=")
                return _list(_build_pod(pod) for pod, on in self._pods.items() if on == node)
            case "POST", found if found.endswith("/eviction"):
                self._pods.pop(found.split("/")[-2], None)
                return Reply(201, b"{}")
            case ("PATCH" | "DELETE") as method, _ if path == _NODES:
                return self._change(method, name, json.loads(request.body or b"{}"))
            case "POST", found if found.startswith(f"{_SYSTEM_PODS}/etcd-"):
                return self._ask_etcd(found.partition("/proxy/")[2], json.loads(request.body))
            case ("GET" | "PATCH") as method, _ if path == _MAPS:
                return self._keep(method, name, request.body)
            case ("GET" | "PATCH") as method, found if found == _PROXY:
                return self._keep_proxy(method, request.body)
            case "GET", "/api/v1":
                kinds = [{"kind": "ConfigMap", "name": "configmaps", "namespaced": True}]
                return Reply(200, json.dumps({"resources": kinds}).encode())
        return Reply(404)

    def _ask_etcd(self, path: str, body: Manifest) -> Reply:
        if path == "v3/maintenance/status":
            return Reply(200, b'{"leader": "1"}')
        if path == "v3/cluster/member/remove":
            names = [name for name, number in self._members.items() if number == body["ID"]]
            for name in names:
                del self._members[name]
            return Reply(200 if names else 404, b"{}")
        members = [{"ID": number, "name": name} for name, number in self._members.items()]
        return Reply(200, json.dumps({"members": members}).encode())

    def _keep(self, method: str, name: str, body: bytes) -> Reply:
        held = self._maps.get(name)
        if method == "PATCH":
            held = held or build_object(CONFIG_MAP, name, "kube-system")
            held = {**held, "data": {**(held.get("data") or {}), **json.loads(body)["data"]}}
            self._maps[name] = held
        return Reply(404) if held is None else Reply(200, json.dumps(held).encode())

    def _keep_proxy(self, method: str, body: bytes) -> Reply:
        if method == "PATCH":
            self._proxy = json.loads(body)[-1]["value"]
        container = {"name": "kube-proxy", "image": self._proxy}
        spec = {"template": {"spec": {"containers": [container]}}}
        return Reply(200 if self._proxy else 404, json.dumps({"spec": spec}).encode())

    def _version(self) -> str:
        """Return the version that guests join with."""
        text = text_at(self._maps[_CONFIG], "data", "ClusterConfiguration")
        return text.rpartition(": ")[2].strip().strip("'\"")

    def _begin(self, version: str) -> None:
        """Create the objects that `kubeadm init` creates."""
        config = build_object(CONFIG_MAP, _CONFIG, "kube-system")
        text = f"kubernetesVersion: {version}\n"
        self._maps[_CONFIG] = {**config, "data": {"ClusterConfiguration": text}}
        self._proxy = f"registry.k8s.io/kube-proxy:{version}"

    def show(self) -> Mapping[str, Manifest]:
        """Return the nodes, each with its pods."""
        pods = Counter(self._pods.values())
        return {
            f"node {name}": {
                **node["spec"],
                "version": text_at(node, "status", "nodeInfo", "kubeletVersion"),
                "labels": node["metadata"]["labels"],
                "pods": pods[name],
            }
            for name, node in self._nodes.items()
        } | {
            "cluster": {
                "members": sorted(self._members),
                "kube-proxy": self._proxy,
                "addon": text_at(self._maps.get("cni", {}), "data", "value"),
            }
        }

    async def _let_join(self) -> None:
        """Let the node of each running machine join."""
        for machine in (await self._client.list(INSTANCE, self._trial)).items:
            name, pool = key_of(machine).name, pool_of(machine)
            if not holds_at(machine, "Ready") or is_deleting(machine):
                continue
            if not self._maps:
                self._begin(text_at(machine, "spec", "image", "registry").rpartition(":")[2])
            disk = f"{uid_of(machine)} {text_at(machine, 'status', 'rootDisk', 'name')}"
            if name in self._nodes and self._disks.get(name) == disk:
                continue
            self._disks[name] = disk
            if pool == CONTROL_PLANE and name not in self._members:
                self._added += 1
                self._members[name] = str(self._added)
            node_info = {"kubeletVersion": self._version()}
            if name in self._nodes:
                self._nodes[name]["status"]["nodeInfo"] = node_info
                continue
            labels = {} if pool == CONTROL_PLANE else {POOL_LABEL: pool}
            metadata = {"uid": f"node-{uid_of(machine)}", "labels": labels, "annotations": {}}
            self._nodes[name] = build_object(
                NODE,
                name,
                metadata=metadata,
                spec={},
                status={"conditions": [READY], "nodeInfo": node_info},
            )
            if labels:
                self._pods[f"pod-of-{name}"] = name

    def _change(self, method: str, name: str, body: Manifest) -> Reply:
        node = self._nodes.get(name)
        if node is None:
            return Reply(404)
        named = (body if method == "PATCH" else {"metadata": body["preconditions"]})["metadata"]
        if named["uid"] != node["metadata"]["uid"]:
            return Reply(409)
        if method == "DELETE":
            del self._nodes[name]
            return Reply(200, b"{}")
        for held, changes in (
            (node["metadata"]["annotations"], named.get("annotations") or {}),
            (node["metadata"]["labels"], named.get("labels") or {}),
            (node["spec"], body.get("spec") or {}),
        ):
            held.update(changes)
            for field in [field for field, value in changes.items() if value is None]:
                del held[field]
        return Reply(200, json.dumps(node).encode())


def changes_cluster(request: Request) -> bool:
    """Return whether a request changes anything; queries of etcd are POST requests as well."""
    asks = request.path.endswith(("/v3/cluster/member/list", "/v3/maintenance/status"))
    return changes_something(request) and not asks


def _list(items: Any) -> Reply:
    listing = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": list(items)}
    return Reply(200, json.dumps(listing).encode())


def _build_pod(name: str) -> Manifest:
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "status": {"phase": "Running"}}


def pool_of(machine: Manifest) -> str:
    """Return the node pool of a machine."""
    return text_at(machine, "metadata", "labels", POOL_LABEL)
