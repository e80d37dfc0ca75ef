"""An in-memory simulation for property tests of the plan: clusters, machines, nodes, time.

It enforces the rules of the API server on which the plan relies: names are unique, deletions have a
UID, patches have a version. Assertions check everything that the plan must never do.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from libs.common.conditions import conditions_of
from libs.common.kinds import SECRET, Kind, Manifest, key_of, uid_of
from libs.common.plan import Apply, Create, Delete, Patch, Step
from libs.contracts.compute import INSTANCE, OPERATION, InstanceView, OperationView
from libs.contracts.ip_claims import IP_CLAIM, IpClaimView
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.causes import find_away, list_staying
from operators.clusters.certificates import Authorities
from operators.clusters.etcd import RemoveMember
from operators.clusters.fake_workloads import join, list_members, mark
from operators.clusters.health import evaluate_all, list_broken
from operators.clusters.naming import POOL_LABEL, RECYCLED, authorities_name, slot_of
from operators.clusters.nodes import ClusterStep, NodeStep, NodeStepKind
from operators.clusters.observed import Node, Observed, Workload, drain_seconds, read_data
from operators.clusters.reconcile import Plan, plan_cluster
from operators.clusters.samples import (
    ADDRESS,
    NOW,
    VERSION,
    SameIssuer,
    build_cluster,
    build_instance,
    view_network,
)
from operators.clusters.status import build_status
from operators.clusters.upgrade import SetProxyVersion, SetVersion, VersionStep
from operators.clusters.versions import is_older


@dataclass
class Simulation:
    """The current state of the simulated cluster.

    Attributes:
        primary: Manifest of the cluster.
        objects: All other objects, by kind and name.
        nodes: Nodes that have joined, by name.
        homes: Machine that each Node runs on, by name.
        pods: Pods by node.
        cut_off: Whether the API of the cluster cannot be reached.
        now: Time.
        incarnation: Counts what was created.
        members: Members of etcd by name, and the disks that have their data.
        version: Version that kubeadm joins nodes of the control plane with.
        proxy: Version of kube-proxy.
        images: Version of the image that the disk of each machine was filled with.
    """

    primary: Manifest
    objects: dict[tuple[Kind, str], Manifest] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)
    cut_off: bool = False
    now: datetime = NOW
    incarnation: int = 0
    members: dict[str, str] = field(default_factory=dict)
    version: str = VERSION
    proxy: str = VERSION
    images: dict[str, str] = field(default_factory=dict)

    @classmethod
    def build(cls, **options: Any) -> Simulation:
        """Build a simulation with a new cluster."""
        return cls(build_cluster(**options))

    @property
    def cluster(self) -> KubernetesCluster:
        """The parsed cluster."""
        return KubernetesCluster.parse(self.primary)

    def instances(self) -> dict[str, Manifest]:
        """Return the machines by name."""
        return {name: each for (kind, name), each in self.objects.items() if kind == INSTANCE}

    def operations(self) -> dict[str, OperationView]:
        """Return the Operations by name."""
        return {
            name: OperationView.parse(each)
            for (kind, name), each in self.objects.items()
            if kind == OPERATION
        }

    # A reconcile.

    def observe(self, held: Mapping[tuple[Kind, str], Manifest] | None = None) -> Observed:
        """Observe the state, or the given cache."""
        objects = dict(self.objects if held is None else held)
        claim = next((each for (kind, _), each in objects.items() if kind == IP_CLAIM), None)
        secret = objects.get((SECRET, authorities_name("edge")))
        views = {
            name: InstanceView.parse(each)
            for (kind, name), each in objects.items()
            if kind == INSTANCE
        }
        operations = {
            name: OperationView.parse(each)
            for (kind, name), each in objects.items()
            if kind == OPERATION
        }
        return Observed(
            authorities=None if secret is None else Authorities.parse(read_data(secret)),
            objects={
                at: each for at, each in objects.items() if at[0] not in (INSTANCE, OPERATION)
            },
            claim=None if claim is None else IpClaimView.parse(claim),
            instances=views,
            operations=operations,
            busy=frozenset(each.instance for each in operations.values() if not each.finished),
            workload=self.look(),
            network=view_network(),
        )

    def look(self) -> Workload:
        """Query the API of the cluster."""
        planes = [
            each for each in self.nodes.values() if each.name in self.instances() and not each.pool
        ]
        if self.cut_off or not planes:
            return Workload(asked=bool(planes), message="no answer")
        held = {
            name: replace(node, pods_left=self.pods.get(name, 0) if node.draining_since else 0)
            for name, node in self.nodes.items()
        }
        if not self.has_majority():
            return Workload(asked=True, message="etcd has no leader")
        away = [name for name in self.members if not self.serves(name)]
        return Workload(
            True,
            True,
            nodes=held,
            version=self.version,
            proxy_version=self.proxy,
            etcd=list_members(self.members, away),
        )

    def serves(self, name: str) -> bool:
        """Return whether an etcd member has its data and a healthy machine."""
        live, node = self.instances().get(name), self.nodes.get(name)
        disk = InstanceView.parse(live).root_disk if live else ""
        return node is not None and node.ready and self.members.get(name) == disk

    def has_majority(self) -> bool:
        """Return whether etcd can write, or has no members because it has not started."""
        serving = sum(map(self.serves, self.members))
        return not self.members or serving > len(self.members) // 2

    def reconcile(
        self,
        *,
        writes: int | None = None,
        held: Mapping[tuple[Kind, str], Manifest] | None = None,
    ) -> Plan:
        """Reconcile, or crash after a number of writes."""
        observed = self.observe(held)
        plan = plan_cluster(self.cluster, observed, SameIssuer(), self.now)
        steps: list[Step | ClusterStep] = [step for batch in plan.batches for step in batch]
        steps += plan.node_steps
        for step in steps[:writes]:
            if isinstance(step, NodeStep):
                self.take_on_node(step)
            elif isinstance(step, RemoveMember | SetVersion | SetProxyVersion):
                self.take_on_cluster(step)
            else:
                self.take(step, observed)
        if writes is None:
            status = build_status(
                self.cluster,
                self.observe(),
                None,
                current=conditions_of(self.primary),
                now=self.now,
            )
            self.primary = {**self.primary, "status": status}
        return plan

    # Writes, with the semantics of the API server.

    def take(self, step: Step, observed: Observed) -> None:
        """Execute a step; a step that the API server would refuse changes nothing."""
        match step:
            case Create():
                self._create(step.kind, step.manifest)
            case Apply() if (step.kind, step.key.name) not in self.objects:
                self._create(step.kind, step.manifest)
            case Apply():
                live = self.objects[step.kind, step.key.name]
                self.objects[step.kind, step.key.name] = {**live, **_body(step.manifest)}
            case Delete():
                live = self.objects.get((step.kind, step.key.name), {})
                if live and uid_of(live) == step.uid:
                    self._check_delete(step, live, observed)
                    del self.objects[step.kind, step.key.name]
            case Patch():
                self._patch(step)

    def _create(self, kind: Kind, manifest: Manifest) -> None:
        name = key_of(manifest).name
        if (kind, name) in self.objects:
            return
        self.incarnation += 1
        made = copy.deepcopy(manifest)
        made["metadata"] |= {"uid": f"{name}-{self.incarnation}", "resourceVersion": "1"}
        if kind == IP_CLAIM:
            made["status"] = {"address": ADDRESS}
        if kind == OPERATION:
            self._check_rebuild(made)
        if kind == INSTANCE:
            self.images[name] = self.cluster.spec.version
            if made["metadata"]["labels"][POOL_LABEL] != CONTROL_PLANE:
                self.check_skew(self.images[name], "the kubelet of a new node")
        self.objects[kind, name] = made

    def _patch(self, step: Patch) -> None:
        live = self.objects.get((step.kind, step.key.name))
        if live is None or uid_of(live) != step.uid:
            return
        assert step.kind == INSTANCE
        notes = step.operations[0]["value"]
        assert RECYCLED in notes
        live["metadata"]["annotations"] = dict(notes)

    def take_on_node(self, step: NodeStep) -> None:
        """Execute a step on a Node, if the UID matches."""
        node = self.nodes.get(step.node)
        assert not self.cut_off, "a step was taken on a cluster that does not answer"
        if node is None or node.uid != step.uid:
            return
        if not node.pool:
            assert self.is_replaceable(), "the only node of a control plane was touched"
        match step.kind:
            case NodeStepKind.CORDON:
                self.nodes[step.node] = replace(node, cordoned=True, draining_since=self.now)
            case NodeStepKind.UNCORDON:
                self.nodes[step.node] = replace(node, cordoned=False, draining_since=None)
            case NodeStepKind.EVICT:
                self.pods[step.node] = max(0, self.pods.get(step.node, 0) - 1)
            case NodeStepKind.REMOVE:
                # The controller checks with the API server first, because the cache may not contain
                # a new machine yet.
                if step.node not in self.instances():
                    del self.nodes[step.node]
                    self.homes.pop(step.node, None)
            case NodeStepKind.MARK:
                self.nodes[step.node] = mark(node, step)

    def take_on_cluster(self, step: RemoveMember | VersionStep) -> None:
        """Execute a step that does not concern a Node."""
        assert not self.cut_off, "a step was taken on a cluster that does not answer"
        match step:
            case SetVersion():
                assert step.old == self.version
                self.version = step.version
            case SetProxyVersion():
                self.check_skew(step.version, "kube-proxy")
                self.proxy = step.version
            case RemoveMember() if step.node in self.members:
                # If the cache has no machine, the controller checks with the API server first.
                if step.has_machine or step.node not in self.instances():
                    assert self.is_replaceable(), "the only member of etcd was removed"
                    del self.members[step.node]
                    assert len(self.members) >= 2, "one member alone has the data"
                    assert self.has_majority(), "etcd lost its majority"

    def is_replaceable(self) -> bool:
        """Return whether one control plane node may be missing."""
        return self.cluster.spec.control_plane.count >= 3

    # Invariants.

    def check_skew(self, version: str, what: str) -> None:
        """Check that a version is not newer than any API server."""
        for name, node in self.nodes.items():
            if not node.pool and name in self.instances():
                assert not is_older(node.kubelet, version), f"{what} is newer than {name}"

    def _check_delete(self, step: Delete, live: Manifest, observed: Observed) -> None:
        if step.kind != INSTANCE:
            return
        view = InstanceView.parse(live)
        assert (
            view.labels[POOL_LABEL] != CONTROL_PLANE
        ), "a machine of the control plane was removed"
        if drain_seconds(self.cluster, view) == 0:
            return
        assert observed.workload.reachable, "a node was removed while its API did not respond"
        self._check_drained(view)

    def _check_rebuild(self, operation: Manifest) -> None:
        view = OperationView.parse(operation)
        live = self.instances()[view.instance]
        instance = InstanceView.parse(live)
        others = [each for each in self.operations().values() if not each.finished]
        assert not others, "two nodes are rebuilt at the same time"
        assert not self.cut_off, "a node was rebuilt while its cluster did not answer"
        is_plane = instance.labels[POOL_LABEL] == CONTROL_PLANE
        if is_plane:
            assert self.is_replaceable(), "the only node of a control plane was rebuilt"
            assert view.instance not in self.members, "the member of etcd was not removed before"
        else:
            self.check_skew(self.cluster.spec.version, "the kubelet of a rebuilt node")
        self._check_drained(instance)
        around = self.observe()
        node_health = evaluate_all(self.cluster, around, self.now)
        away = find_away(self.cluster, around, node_health)
        assert away is None, "a node is rebuilt before the previous one is back"
        asked = {each.node for each in self.cluster.spec.recycle}
        old = is_older(
            self.nodes[view.instance].kubelet if view.instance in self.nodes else "",
            self.cluster.spec.version,
        )
        if view.instance not in asked and not is_plane and not old:
            observed = self.observe()
            node_health = evaluate_all(self.cluster, observed, self.now)
            broken = list_broken(list_staying(self.cluster, observed), node_health)
            limit = self.cluster.spec.health.max_unhealthy
            assert 0 < len(broken) <= limit, "rebuilt beyond the budget"

    def _check_drained(self, instance: InstanceView) -> None:
        node = self.nodes.get(instance.key.name)
        if node is None or drain_seconds(self.cluster, instance) == 0:
            return
        assert node.draining_since is not None, "a node was not drained"
        spent = (self.now - node.draining_since).total_seconds()
        left = self.pods.get(node.name, 0)
        limit = drain_seconds(self.cluster, instance)
        assert left == 0 or spent >= limit, "pods were left, and there was time"

    # Actions of guests and other operators.

    def boot(self) -> None:
        """Start every machine that was created."""
        for name, live in self.instances().items():
            if not live.get("status"):
                pool = live["metadata"]["labels"][POOL_LABEL]
                built = build_instance(name, pool, since=self.now)
                live["status"] = built["status"]

    def join_all(self) -> None:
        """Join each guest whose machine runs, according to its initial settings."""
        for name, live in self.instances().items():
            if self.homes.get(name) == uid_of(live) or not live.get("status"):
                continue
            pool = live["metadata"]["labels"][POOL_LABEL]
            fresh = join(name, "" if pool == CONTROL_PLANE else pool, self.images[name])
            if pool == CONTROL_PLANE and not self.has_majority():
                continue
            self.homes[name] = uid_of(live)
            # A kubelet uses the existing Node of its name, even if that is cordoned.
            held = self.nodes.get(name, replace(fresh, uid=f"{uid_of(live)}-node"))
            self.nodes[name] = replace(held, ready=True, since=self.now, kubelet=fresh.kubelet)
            if pool == CONTROL_PLANE:
                if not self.members:
                    self.version = self.proxy = self.images[name]
                self._start_member(name)

    def _start_member(self, name: str) -> None:
        """Add an etcd member, as `kubeadm join` does; no member of an earlier disk may exist."""
        disk = InstanceView.parse(self.instances()[name]).root_disk
        assert self.members.setdefault(name, disk) == disk, "a member came back without its data"

    def settle(self, passes: int = 60) -> None:
        """Let the simulation converge: no more faults, and time passes."""
        self.cut_off = False
        quiet = 0
        for _ in range(passes):
            before = copy.deepcopy((self.objects, self.nodes))
            self.now += timedelta(seconds=200)
            self.end_operations()
            self.boot()
            self.join_all()
            self.reconcile()
            # All time-outs have passed by then.
            quiet = quiet + 1 if before == (self.objects, self.nodes) else 0
            if quiet > 3:
                return

    def end_operations(self, *, succeed: bool = True) -> None:
        """End Operations; a successful one gives the node a new disk and makes it healthy."""
        for (kind, name), live in self.objects.items():
            operation = OperationView.parse(live) if kind == OPERATION else None
            if operation is None or operation.finished:
                continue
            live["status"] = {"phase": "Succeeded" if succeed else "Failed"}
            machine = self.instances().get(operation.instance)
            if succeed and machine is not None and machine.get("status"):
                built = build_instance(operation.instance, since=self.now)
                machine["status"] = {**built["status"], "rootDisk": {"name": name}}
                self.images[operation.instance] = self.cluster.spec.version
                if node := self.nodes.get(operation.instance):
                    self.nodes[node.name] = replace(
                        node, ready=True, since=self.now, kubelet=self.cluster.spec.version
                    )
                    if not node.pool:
                        self._start_member(node.name)

    def is_slot(self, name: str) -> bool:
        """Return whether the name of a machine is a slot of its pool."""
        pool = self.instances()[name]["metadata"]["labels"][POOL_LABEL]
        return slot_of("edge", pool, name) is not None


def _body(manifest: Manifest) -> Manifest:
    return {name: value for name, value in manifest.items() if name != "metadata"}
