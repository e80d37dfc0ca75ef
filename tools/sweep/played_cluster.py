"""The API of a cluster that the clusters operator made, played for the sweep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from libs.common.client import Client
from libs.common.contracts.compute import INSTANCE
from libs.common.contracts.reading import holds_at, text_at
from libs.common.kinds import NODE, POD, Manifest, build_object, is_deleting, key_of, uid_of
from operators.clusters.api.v1alpha1 import CONTROL_PLANE
from operators.clusters.naming import POOL_LABEL
from tools.sweep.outside import Reply, Request

_MOMENT: Final = "2026-01-31T12:00:00Z"
READY: Final = {
    "type": "Ready",
    "status": "True",
    "reason": "Running",
    "lastTransitionTime": _MOMENT,
}
"""Condition of what is ready."""
_NODES: Final = NODE.path()
_PODS: Final = POD.path()


class PlayedCluster:
    """Play the API of the cluster that is made: its Nodes, and a pod on each node of a pool.

    Args:
        trial: Namespace of the trial.
        client: Connection with all rights, to see which machines run.
    """

    def __init__(self, trial: str, client: Client) -> None:
        """Begin without nodes."""
        self._trial = trial
        self._client = client
        self._nodes: dict[str, Manifest] = {}
        self._pods: dict[str, str] = {}

    async def answer(self, request: Request) -> Reply:
        """Answer a request; whoever asks is let in, as there is no TLS on the way."""
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
        return Reply(404)

    def show(self) -> Mapping[str, Manifest]:
        """Return the nodes, each with the pods that it has."""
        pods = Counter(self._pods.values())
        return {
            f"node {name}": {**node["spec"], "pods": pods[name]}
            for name, node in self._nodes.items()
        }

    async def _let_join(self) -> None:
        """Let the node of each machine that runs join."""
        for machine in (await self._client.list(INSTANCE, self._trial)).items:
            name, pool = key_of(machine).name, pool_of(machine)
            if name in self._nodes or not holds_at(machine, "Ready") or is_deleting(machine):
                continue
            labels = {} if pool == CONTROL_PLANE else {POOL_LABEL: pool}
            metadata = {"uid": f"node-{uid_of(machine)}", "labels": labels, "annotations": {}}
            self._nodes[name] = build_object(
                NODE, name, metadata=metadata, spec={}, status={"conditions": [READY]}
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
            (node["metadata"]["annotations"], named["annotations"]),
            (node["spec"], body["spec"]),
        ):
            held.update(changes)
            for field in [field for field, value in changes.items() if value is None]:
                del held[field]
        return Reply(200, json.dumps(node).encode())


def _list(items: Any) -> Reply:
    listing = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": list(items)}
    return Reply(200, json.dumps(listing).encode())


def _build_pod(name: str) -> Manifest:
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "status": {"phase": "Running"}}


def pool_of(machine: Manifest) -> str:
    """Return the pool of the node that a machine is."""
    return text_at(machine, "metadata", "labels", POOL_LABEL)
