"""A small world in memory for property tests of the plan: clusters, machines, nodes, time.

It keeps the rules of the API server that the plan counts on: a name is taken once, a deletion names
a UID, a patch names a version. Whatever the plan must never do is refused by an assertion here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from libs.common.conditions import conditions_of
from libs.common.contracts.compute import INSTANCE, OPERATION, InstanceView, OperationView
from libs.common.contracts.ip_claims import IP_CLAIM, IpClaimView
from libs.common.kinds import SECRET, Kind, Manifest, key_of, uid_of
from libs.common.plan import Apply, Create, Delete, Patch, Step
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.certificates import Authorities
from operators.clusters.health import judge_all, list_broken
from operators.clusters.naming import POOL_LABEL, RECYCLED, authorities_name, slot_of
from operators.clusters.nodes import NodeStep, NodeStepKind, find_away, list_staying
from operators.clusters.observed import Node, Observed, Workload, drain_seconds, read_data
from operators.clusters.pretend import join
from operators.clusters.reconcile import Plan, plan_cluster
from operators.clusters.samples import (
    ADDRESS,
    NOW,
    SameIssuer,
    build_cluster,
    build_instance,
)
from operators.clusters.status import build_status


@dataclass
class World:
    """Hold what there is.

    Attributes:
        primary: The cluster, as the API server has it.
        objects: Everything else, by kind and name.
        nodes: Nodes that have joined, by name.
        homes: Machine that each Node runs on, by name.
        pods: Pods by node.
        cut_off: Whether the API of the cluster cannot be reached.
        now: Time.
        incarnation: Counts what was created.
    """

    primary: Manifest
    objects: dict[tuple[Kind, str], Manifest] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)
    cut_off: bool = False
    now: datetime = NOW
    incarnation: int = 0

    @classmethod
    def build(cls, **options: Any) -> World:
        """Build a world with a new cluster in it."""
        return cls(build_cluster(**options))

    @property
    def cluster(self) -> KubernetesCluster:
        """The cluster, as a pass has it."""
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

    # A pass.

    def observe(self, held: Mapping[tuple[Kind, str], Manifest] | None = None) -> Observed:
        """Look around, in the cache where one is given."""
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
        )

    def look(self) -> Workload:
        """Ask the API of the cluster."""
        planes = [
            each for each in self.nodes.values() if each.name in self.instances() and not each.pool
        ]
        if self.cut_off or not planes:
            return Workload(asked=bool(planes), message="no answer")
        held = {
            name: replace(node, pods_left=self.pods.get(name, 0) if node.draining_since else 0)
            for name, node in self.nodes.items()
        }
        return Workload(True, True, nodes=held)

    def reconcile(
        self,
        *,
        writes: int | None = None,
        held: Mapping[tuple[Kind, str], Manifest] | None = None,
    ) -> Plan:
        """Make a pass, or the beginning of one that ends in a crash after some writes."""
        observed = self.observe(held)
        plan = plan_cluster(self.cluster, observed, SameIssuer(), self.now)
        steps: list[Step | NodeStep] = [step for batch in plan.batches for step in batch]
        steps += plan.node_steps
        for step in steps[:writes]:
            if isinstance(step, NodeStep):
                self.take_on_node(step)
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

    # Writes, as the API server answers them.

    def take(self, step: Step, observed: Observed) -> None:
        """Take a step; one that the API server would refuse changes nothing."""
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
        """Do to a Node what is asked, if it is the one that was meant."""
        node = self.nodes.get(step.node)
        assert not self.cut_off, "a step was taken on a cluster that does not answer"
        if node is None or node.uid != step.uid:
            return
        assert node.pool, "a node of the control plane was touched"
        match step.kind:
            case NodeStepKind.CORDON:
                self.nodes[step.node] = replace(node, cordoned=True, draining_since=self.now)
            case NodeStepKind.UNCORDON:
                self.nodes[step.node] = replace(node, cordoned=False, draining_since=None)
            case NodeStepKind.EVICT:
                self.pods[step.node] = max(0, self.pods.get(step.node, 0) - 1)
            case NodeStepKind.REMOVE:
                # The controller asks the API server before: a cache may not know of a machine yet.
                if step.node not in self.instances():
                    del self.nodes[step.node]
                    self.homes.pop(step.node, None)

    # What must never happen.

    def _check_delete(self, step: Delete, live: Manifest, observed: Observed) -> None:
        if step.kind != INSTANCE:
            return
        view = InstanceView.parse(live)
        assert view.labels[POOL_LABEL] != CONTROL_PLANE, "a node of the control plane was removed"
        if drain_seconds(self.cluster, view) == 0:
            return
        assert observed.workload.reachable, "a node went while its cluster did not answer"
        self._check_drained(view)

    def _check_rebuild(self, operation: Manifest) -> None:
        view = OperationView.parse(operation)
        live = self.instances()[view.instance]
        instance = InstanceView.parse(live)
        others = [each for each in self.operations().values() if not each.finished]
        assert not others, "two nodes are rebuilt at once"
        assert not self.cut_off, "a node was rebuilt while its cluster did not answer"
        assert instance.labels[POOL_LABEL] != CONTROL_PLANE, "the control plane was rebuilt"
        self._check_drained(instance)
        around = self.observe()
        verdicts = judge_all(self.cluster, around, self.now)
        away = find_away(self.cluster, around, verdicts)
        assert away is None, "a node is rebuilt before the one before it is back"
        asked = {each.node for each in self.cluster.spec.recycle}
        if view.instance not in asked:
            observed = self.observe()
            verdicts = judge_all(self.cluster, observed, self.now)
            broken = list_broken(list_staying(self.cluster, observed), verdicts)
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

    # The rest of the world.

    def boot(self) -> None:
        """Let every machine that was made run."""
        for name, live in self.instances().items():
            if not live.get("status"):
                pool = live["metadata"]["labels"][POOL_LABEL]
                built = build_instance(name, pool, since=self.now)
                live["status"] = built["status"]

    def join_all(self) -> None:
        """Let each guest whose machine runs join, as its first settings say."""
        for name, live in self.instances().items():
            if self.homes.get(name) == uid_of(live) or not live.get("status"):
                continue
            self.homes[name] = uid_of(live)
            pool = live["metadata"]["labels"][POOL_LABEL]
            fresh = join(name, "" if pool == CONTROL_PLANE else pool)
            # A kubelet takes over the Node of its name that is there, cordoned as it may be.
            held = self.nodes.get(name, replace(fresh, uid=f"{uid_of(live)}-node"))
            self.nodes[name] = replace(held, ready=True, since=self.now)

    def settle(self, passes: int = 60) -> None:
        """Let everything come to rest: nothing breaks any more, and time passes."""
        self.cut_off = False
        quiet = 0
        for _ in range(passes):
            before = copy.deepcopy((self.objects, self.nodes))
            self.now += timedelta(seconds=200)
            self.end_operations()
            self.boot()
            self.join_all()
            self.reconcile()
            # What waits for time to pass has waited by then.
            quiet = quiet + 1 if before == (self.objects, self.nodes) else 0
            if quiet > 3:
                return

    def end_operations(self, *, succeed: bool = True) -> None:
        """End Operations; one that succeeds gives a new disk, and a node that is well."""
        for (kind, name), live in self.objects.items():
            operation = OperationView.parse(live) if kind == OPERATION else None
            if operation is None or operation.finished:
                continue
            live["status"] = {"phase": "Succeeded" if succeed else "Failed"}
            machine = self.instances().get(operation.instance)
            if succeed and machine is not None and machine.get("status"):
                built = build_instance(operation.instance, since=self.now)
                machine["status"] = {**built["status"], "rootDisk": {"name": name}}
                if node := self.nodes.get(operation.instance):
                    self.nodes[node.name] = replace(node, ready=True, since=self.now)

    def is_slot(self, name: str) -> bool:
        """Tell whether a machine is named as a slot of its pool is."""
        pool = self.instances()[name]["metadata"]["labels"][POOL_LABEL]
        return slot_of("edge", pool, name) is not None


def _body(manifest: Manifest) -> Manifest:
    return {name: value for name, value in manifest.items() if name != "metadata"}
