"""Whatever happens in whatever order: no node twice, none lost without need, rest at the end.

The simulation of clusters, machines, nodes and time enforces the rules of the API server on which
the plan relies: names are unique, deletions have a UID, patches have a version. Its assertions
check everything that the plan must never do.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

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
from operators.clusters.naming import (
    POOL_LABEL,
    RECYCLED,
    authorities_name,
    slot_of,
    user_data_name,
)
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
from operators.clusters.services import Publish
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
            elif isinstance(step, RemoveMember | SetVersion | SetProxyVersion | Publish):
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

    def take_on_cluster(self, step: RemoveMember | VersionStep | Publish) -> None:
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


NEXT = "v1.35.1"
"""Version that clusters are upgraded to."""


class ClusterMachine(RuleBasedStateMachine):
    """Do to a cluster what users, machines, networks and crashes do."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation.build()
        self.stale: dict[Any, Any] = {}

    @initialize(
        count=st.sampled_from([1, 3]),
        workers=st.integers(1, 3),
        budget=st.integers(0, 2),
        settled=st.booleans(),
    )
    def begin(self, count: int, workers: int, budget: int, settled: bool) -> None:
        self.simulation = Simulation.build(
            count=count, workers=workers, health={"maxUnhealthy": budget, "unhealthySeconds": 60}
        )
        if settled:
            self.simulation.settle()

    @rule(passes=st.integers(1, 3))
    def reconcile(self, passes: int) -> None:
        for _ in range(passes):
            self.simulation.reconcile()

    @rule(slot=st.integers(0, 2), seconds=st.sampled_from([59, 61, 400]))
    def node_breaks_for_long(self, slot: int, seconds: int) -> None:
        self.node_breaks(slot, "web")
        self.simulation.now += timedelta(seconds=seconds)
        self.simulation.reconcile()

    @rule(writes=st.integers(0, 12))
    def crash(self, writes: int) -> None:
        self.simulation.reconcile(writes=writes)

    @rule()
    def remember(self) -> None:
        self.stale = copy.deepcopy(self.simulation.objects)

    @rule(writes=st.integers(0, 12))
    def reconcile_as_a_second_leader(self, writes: int) -> None:
        """The cache of another process may be as old as it likes, its writes are the same."""
        creates_only = {
            at: each
            for at, each in self.stale.items()
            if at in self.simulation.objects and at[0] == INSTANCE
        }
        fresh = {at: each for at, each in self.simulation.objects.items() if at[0] != INSTANCE}
        self.simulation.reconcile(writes=writes, held={**fresh, **creates_only})

    @rule()
    def machines_start(self) -> None:
        self.simulation.boot()

    @rule()
    def guests_join(self) -> None:
        self.simulation.join_all()

    @rule(seconds=st.sampled_from([1, 30, 61, 400, 1300]))
    def time_passes(self, seconds: int) -> None:
        self.simulation.now += timedelta(seconds=seconds)

    @rule(workers=st.integers(0, 4), drain=st.sampled_from([0, 60]))
    def pool_changes(self, workers: int, drain: int) -> None:
        pool = {"name": "web", "count": workers, "size": "large", "drainSeconds": drain}
        self._change(pools=[pool])

    @rule()
    def pool_goes(self) -> None:
        self._change(pools=[])

    @rule(token=st.sampled_from(["a", "b"]), slot=st.integers(0, 2))
    def somebody_asks_for_a_rebuild(self, token: str, slot: int) -> None:
        self._change(recycle=[{"node": f"edge-web-{slot}", "token": token}])

    @rule(cut_off=st.booleans())
    def network_changes(self, cut_off: bool) -> None:
        self.simulation.cut_off = cut_off

    @rule(slot=st.integers(0, 3), pool=st.sampled_from(["web", CONTROL_PLANE]))
    def one_breaks(self, slot: int, pool: str) -> None:
        self.node_breaks(slot, pool)

    def node_breaks(self, slot: int, pool: str) -> None:
        node = self.simulation.nodes.get(f"edge-{pool}-{slot}")
        if node is not None:
            self.simulation.nodes[node.name] = replace(node, ready=False, since=self.simulation.now)

    @rule(slot=st.integers(0, 3), pods=st.integers(0, 3))
    def pods_come(self, slot: int, pods: int) -> None:
        node = self.simulation.nodes.get(f"edge-web-{slot}")
        if node is not None and not node.cordoned:
            self.simulation.pods[node.name] = pods

    @rule(slot=st.integers(0, 3))
    def somebody_deletes_a_machine(self, slot: int) -> None:
        self.simulation.objects.pop((INSTANCE, f"edge-web-{slot}"), None)

    @rule()
    def version_goes_up(self) -> None:
        if self.simulation.cluster.spec.control_plane.count >= 3:
            self._change(version=NEXT)

    @rule(slot=st.integers(0, 2))
    def somebody_deletes_a_machine_of_the_control_plane(self, slot: int) -> None:
        members = self.simulation.members
        if len(members) == 3 and all(map(self.simulation.serves, members)):
            self.simulation.objects.pop((INSTANCE, f"edge-{CONTROL_PLANE}-{slot}"), None)

    @rule(succeed=st.booleans())
    def operations_end(self, succeed: bool) -> None:
        self.simulation.end_operations(succeed=succeed)

    @invariant()
    def every_machine_has_a_slot(self) -> None:
        assert all(self.simulation.is_slot(name) for name in self.simulation.instances())

    @invariant()
    def no_second_cluster_begins(self) -> None:
        """After the API has responded once, every guest that boots joins."""
        conditions = (self.simulation.primary.get("status") or {}).get("conditions") or ()
        begun = any(
            each["type"] == "Initialized" and each["status"] == "True" for each in conditions
        )
        inits = [
            name
            for name in self.simulation.instances()
            if "kubeadm init" in self._user_data(name) and name != f"edge-{CONTROL_PLANE}-0"
        ]
        assert inits == []
        if begun and not self.simulation.cut_off and self.simulation.look().reachable:
            self.simulation.reconcile()
            assert "kubeadm init" not in self._user_data(f"edge-{CONTROL_PLANE}-0")

    def teardown(self) -> None:
        """Nothing more happens: the cluster comes to be what its spec asks for, and stays so."""
        self._change(health={"maxUnhealthy": 9}, recycle=[])
        for node in self.simulation.nodes.values():
            if not node.pool:
                self.simulation.nodes[node.name] = replace(node, ready=True)
        failed = [at for at, each in self.simulation.objects.items() if _has_failed(each)]
        for at in failed:
            del self.simulation.objects[at]
        self.simulation.settle()

        spec = self.simulation.cluster.spec
        wanted = {f"edge-{CONTROL_PLANE}-{slot}" for slot in range(spec.control_plane.count)}
        wanted |= {f"edge-{pool.name}-{n}" for pool in spec.pools for n in range(pool.count)}
        assert set(self.simulation.instances()) == set(self.simulation.nodes) == wanted
        assert not any(node.cordoned for node in self.simulation.nodes.values())
        assert {node.kubelet for node in self.simulation.nodes.values()} == {spec.version}
        assert self.simulation.proxy == self.simulation.version == spec.version
        planes = {f"edge-{CONTROL_PLANE}-{slot}" for slot in range(spec.control_plane.count)}
        assert set(self.simulation.members) == planes
        before = copy.deepcopy(self.simulation.objects)
        plan = self.simulation.reconcile()
        assert plan.node_steps == ()
        assert self.simulation.objects == before

    def _change(self, **spec: Any) -> None:
        primary = self.simulation.primary
        self.simulation.primary = {**primary, "spec": {**primary["spec"], **spec}}

    def _user_data(self, node: str) -> str:
        secret = self.simulation.objects.get((SECRET, user_data_name(node))) or {}
        return read_data(secret).get("userdata", "")


def _has_failed(manifest: Any) -> bool:
    return bool((manifest.get("status") or {}).get("phase") == "Failed")


ClusterMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestCluster = ClusterMachine.TestCase
