"""Simulation of other operators and of the guests of a cluster, for tests.

`drive` simulates ipam, network and compute on a fake API; `FakeWorkloads` simulates the API of a
managed cluster: a Node joins after its Instance is ready, and draining removes the pods of a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from libs.common.conditions import render_time
from libs.common.kinds import ENDPOINT_SLICE, Key, Manifest, key_of
from libs.common.reading import text_at
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.compute import INSTANCE, OPERATION, InstanceView
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.addons import AddonStep
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KUBERNETES_CLUSTER
from operators.clusters.etcd import Etcd, Member, RemoveMember
from operators.clusters.naming import CLUSTER_LABEL, POOL_LABEL, endpoint_host
from operators.clusters.nodes import ClusterStep, NodeStep, NodeStepKind
from operators.clusters.observed import Node, Workload
from operators.clusters.samples import ADDRESS, VERSION, build_network
from operators.clusters.services import Publish
from operators.clusters.upgrade import SetProxyVersion, SetVersion
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
"""Conditions of a ready object."""


def drive(api: FakeApi) -> None:
    """Allocate addresses, run machines, and complete Operations, as other operators do."""
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
    for cluster in api.objects(KUBERNETES_CLUSTER):
        name, space = cluster["spec"]["networkRef"]["name"], key_of(cluster).namespace
        if api.find(NETWORK, Key(space, name)) is None:
            network = build_network(name)
            api.create({**network, "metadata": {"name": name, "namespace": space}})
    for firewall in api.objects(FIREWALL):
        if is_unseen(firewall):
            api.patch_status(FIREWALL, key_of(firewall), {"conditions": READY})
    for number, instance in enumerate(api.objects(INSTANCE)):
        if is_unseen(instance):
            run_machine(api, key_of(instance), number)
    for operation in api.objects(OPERATION):
        if is_unseen(operation):
            rebuild(api, operation)


def is_unseen(manifest: Manifest) -> bool:
    """Return whether the status is only the default of the CRD."""
    return manifest.get("status") in (None, {}, {"observedGeneration": 0})


def rebuild(api: FakeApi, operation: Manifest) -> None:
    """Give a machine another disk, and complete the Operation that requests it."""
    key = key_of(operation)
    instance = Key(key.namespace, operation["spec"]["targetRef"]["name"])
    held = api.find(INSTANCE, instance)
    if held is not None and not is_unseen(held):
        ready = [{**READY[0], "lastTransitionTime": render_time(datetime.now(UTC))}]
        disk = {"rootDisk": {"name": key.name}, "conditions": ready}
        api.patch_status(INSTANCE, instance, {**held["status"], **disk})
    api.patch_status(OPERATION, key, {"phase": "Succeeded"})


def run_machine(api: FakeApi, key: Key, number: int, disk: str = "root") -> None:
    """Set the machine of a node to running."""
    status = {
        "vmiUID": f"{key.name}-vmi",
        "privateIP": f"10.0.{sum(key.name.encode()) % 250}.{number + 1}",
        "rootDisk": {"name": f"{key.name}-{disk}"},
        # It has just started: a machine that runs for long without joining counts as broken.
        "conditions": [{**READY[0], "lastTransitionTime": render_time(datetime.now(UTC))}],
    }
    api.patch_status(INSTANCE, key, status)


@dataclass(slots=True)
class FakeWorkloads:
    """A fake API of one cluster, next to a fake API with its Instances.

    Attributes:
        api: Fake API with the Instances.
        nodes: Nodes that have joined, by name.
        addons: Digest of the applied content, by addon.
        versions: Versions of kubeadm, of kube-proxy and of nodes.
        disks: Disk that each node joined with, by name.
    """

    api: FakeApi
    nodes: dict[str, Node]
    pods: dict[str, int]
    cut_off: bool = False
    addons: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    disks: dict[str, str] = field(default_factory=dict)

    async def look(self, access: Access) -> Workload:
        """Report the nodes, if the API is reachable."""
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
            return Workload(asked=True, message="no response in time")
        clusters = {
            key_of(each): text_at(each, "spec", "version")
            for each in self.api.objects(KUBERNETES_CLUSTER)
        }
        for view in views.values():
            asked = clusters.get(Key(view.key.namespace, view.labels.get(CLUSTER_LABEL, "")), "")
            self.versions.setdefault("kubeadm", asked)
            self.versions.setdefault("proxy", asked)
            if view.ready:
                self._join(view, asked)
        held = {
            name: replace(node, pods_left=self.pods.get(name, 0) if node.draining_since else 0)
            for name, node in self.nodes.items()
        }
        return Workload(
            True,
            True,
            nodes=held,
            addons=dict(self.addons),
            version=self.versions["kubeadm"],
            proxy_version=self.versions["proxy"],
            etcd=list_members(self.members),
        )

    def _join(self, view: InstanceView, image: str) -> None:
        """Join a guest that has not joined with its current disk."""
        name, pool = view.key.name, view.labels.get(POOL_LABEL, "")
        if self.disks.get(name) != view.root_disk or name not in self.nodes:
            self.disks[name] = view.root_disk
            fresh = join(name, "" if pool == CONTROL_PLANE else pool, image)
            held = self.nodes.setdefault(name, fresh)
            self.nodes[name] = replace(held, kubelet=fresh.kubelet, since=view.ready_since)
            if pool == CONTROL_PLANE:
                self.members.add(name)

    async def apply(self, access: Access, step: AddonStep) -> str:
        """Apply an addon."""
        self.addons[step.name] = step.digest
        return ""

    def forget(self, host: str) -> None:
        """Do nothing, because no certificates are read."""

    async def take(self, access: Access, step: ClusterStep, now: datetime) -> str:
        """Execute a step in the cluster."""
        match step:
            case RemoveMember():
                self.members.discard(step.node)
                return ""
            case SetVersion():
                self.versions["kubeadm"] = step.version
                return ""
            case SetProxyVersion():
                self.versions["proxy"] = step.version
                return ""
            case Publish():
                return ""
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
            case NodeStepKind.MARK:
                self.nodes[step.node] = mark(node, step)
        return ""


def mark(node: Node, step: NodeStep) -> Node:
    """Return a Node with the labels and taints that a step sets."""
    assert step.marks is not None
    marks = step.marks
    labels = {**node.labels, **marks.labels}
    return replace(
        node,
        labels={key: value for key, value in labels.items() if value is not None},
        taints=node.taints if marks.taints is None else marks.taints,
        managed=marks.managed,
    )


def is_node_at(access: Access, instance: InstanceView) -> bool:
    """Return whether an Instance belongs to the queried cluster."""
    cluster = Key(instance.key.namespace, instance.labels.get(CLUSTER_LABEL, ""))
    return access.host == endpoint_host(cluster)


def join(name: str, pool: str, version: str = VERSION) -> Node:
    """Return a Node that has just joined and is ready."""
    since = datetime.fromisoformat(_MOMENT)
    return Node(name, f"{name}-node", pool, True, since, "", False, None, kubelet=version)


def list_members(names: Iterable[str], away: Iterable[str] = ()) -> Etcd:
    """Return members of etcd by the names of their nodes.

    Args:
        names: Nodes that have a member.
        away: Nodes whose member does not respond.
    """
    lost = set(away)
    return Etcd(
        tuple(Member(f"id-of-{each}", each, "", False, each not in lost) for each in sorted(names))
    )
