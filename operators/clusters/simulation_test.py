"""Whatever happens in whatever order: no node twice, none lost without need, rest at the end."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from libs.common.kinds import SECRET
from libs.contracts.compute import INSTANCE
from operators.clusters.api.v1alpha1 import CONTROL_PLANE
from operators.clusters.naming import user_data_name
from operators.clusters.observed import read_data
from operators.clusters.simulation import Simulation

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
