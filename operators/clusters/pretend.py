"""What other operators and the guests of a cluster do, pretended, for tests.

`drive` plays ipam, network and compute on a fake API; `PretendWorkloads` plays the API of a
cluster: a Node joins once its Instance is ready, and the pods of a node leave when it is drained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from libs.common.conditions import render_time
from libs.common.contracts.compute import INSTANCE, OPERATION, InstanceView
from libs.common.contracts.ip_claims import IP_CLAIM
from libs.common.contracts.network import FIREWALL
from libs.common.kinds import ENDPOINT_SLICE, Key, key_of
from libs.common.testing.fakeapi import FakeApi
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KUBERNETES_CLUSTER
from operators.clusters.naming import CLUSTER_LABEL, POOL_LABEL, endpoint_host
from operators.clusters.nodes import NodeStep, NodeStepKind
from operators.clusters.observed import Node, Workload
from operators.clusters.samples import ADDRESS
from operators.clusters.workload import Access

_MOMENT = "2026-03-01T12:00:00Z"
READY = [
    {
        "type": "Ready",
        "status": "True",
        "reason": "Running",
        "message": "",
        "lastTransitionTime": _MOMENT,
    }
]
"""Conditions of what is ready."""


def drive(api: FakeApi) -> None:
    """Give claims an address, run machines, and end Operations, as other operators do."""
    for claim in api.objects(IP_CLAIM):
        held = api.find(ENDPOINT_SLICE, key_of(claim)) or {}
        bound = {
            **READY[0],
            "type": "Bound",
            "status": "True" if held.get("endpoints") else "False",
        }
        status = {"address": ADDRESS, "conditions": [*READY, bound]}
        if (claim.get("status") or {}) != status:
            api.patch_status(IP_CLAIM, key_of(claim), status)
    for firewall in api.objects(FIREWALL):
        if not firewall.get("status"):
            api.patch_status(FIREWALL, key_of(firewall), {"conditions": READY})
    for number, instance in enumerate(api.objects(INSTANCE)):
        if not instance.get("status"):
            run_machine(api, key_of(instance), number)
    for operation in api.objects(OPERATION):
        if not operation.get("status"):
            api.patch_status(OPERATION, key_of(operation), {"phase": "Succeeded"})


def run_machine(api: FakeApi, key: Key, number: int, disk: str = "root") -> None:
    """Let the machine of a node run."""
    status = {
        "vmiUID": f"{key.name}-vmi",
        "privateIP": f"10.0.{sum(key.name.encode()) % 250}.{number + 1}",
        "rootDisk": {"name": f"{key.name}-{disk}"},
        # It has just started: a machine that has run for long and not joined is broken.
        "conditions": [{**READY[0], "lastTransitionTime": render_time(datetime.now(UTC))}],
    }
    api.patch_status(INSTANCE, key, status)


@dataclass(slots=True)
class PretendWorkloads:
    """Play the API of one cluster beside a fake API that has its Instances.

    Attributes:
        api: Has the Instances.
        nodes: Nodes that have joined, by name.
        pods: Pods by node.
        cut_off: Whether the API cannot be reached.
    """

    api: FakeApi
    nodes: dict[str, Node]
    pods: dict[str, int]
    cut_off: bool = False

    async def look(self, access: Access) -> Workload:
        """Tell of the nodes, as long as the API can be reached."""
        views = {
            each.key.name: each
            for each in map(InstanceView.parse, self.api.objects(INSTANCE))
            if is_node_at(access, each)
        }
        running = [
            each
            for each in views.values()
            if each.labels.get(POOL_LABEL) == CONTROL_PLANE and each.ready
        ]
        if self.cut_off or not running or not self.api.objects(KUBERNETES_CLUSTER):
            return Workload(asked=True, message="no answer in time")
        for name, view in views.items():
            if view.ready and name not in self.nodes:
                pool = view.labels.get(POOL_LABEL, "")
                self.nodes[name] = join(name, "" if pool == CONTROL_PLANE else pool)
        held = {
            name: replace(node, pods_left=self.pods.get(name, 0) if node.draining_since else 0)
            for name, node in self.nodes.items()
        }
        return Workload(True, True, nodes=held)

    async def take(self, access: Access, step: NodeStep, now: datetime) -> str:
        """Do what is asked to a Node."""
        node = self.nodes.get(step.node)
        if node is None or node.uid != step.uid:
            return ""
        match step.kind:
            case NodeStepKind.CORDON:
                self.nodes[step.node] = replace(node, cordoned=True, draining_since=now)
            case NodeStepKind.UNCORDON:
                self.nodes[step.node] = replace(node, cordoned=False, draining_since=None)
            case NodeStepKind.EVICT:
                self.pods[step.node] = 0
            case NodeStepKind.REMOVE:
                del self.nodes[step.node]
        return ""


def is_node_at(access: Access, instance: InstanceView) -> bool:
    """Tell whether an Instance is of the cluster that is asked."""
    cluster = Key(instance.key.namespace, instance.labels.get(CLUSTER_LABEL, ""))
    return access.host == endpoint_host(cluster)


def join(name: str, pool: str) -> Node:
    """Return a Node that has just joined and is ready."""
    since = datetime.fromisoformat(_MOMENT)
    return Node(name, f"{name}-node", pool, True, since, "", False, None)
