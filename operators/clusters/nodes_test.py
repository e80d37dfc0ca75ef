"""Which nodes are drained, removed, rebuilt and released."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from libs.common.plan import Create, Delete, Patch
from libs.contracts.compute import OPERATION, InstanceView, OperationView
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.causes import list_causes
from operators.clusters.health import State, evaluate
from operators.clusters.naming import REBUILDS, RECYCLED
from operators.clusters.nodes import (
    NodePlan,
    NodeStep,
    NodeStepKind,
    look_again,
    plan_nodes,
)
from operators.clusters.observed import Node, Observed, Workload, is_lost
from operators.clusters.resources import build_instance as build_machine
from operators.clusters.samples import (
    NOW,
    build_node,
    build_operation,
    parse_cluster,
    view_instance,
)
from operators.clusters.status import build_status

WEB = [f"edge-web-{slot}" for slot in range(4)]
PLANE = "edge-control-plane-0"


def observe(*nodes: Node, instances: list[InstanceView] | None = None, **around: Any) -> Observed:
    """Show a cluster of a control plane and some web nodes, all ready unless said otherwise."""
    found = {name: node_of(name) for name in (*WEB[:2], PLANE)} | {
        each.name: each for each in nodes
    }
    views = instances or [view_instance(name) for name in WEB[:2]]
    views.append(view_instance(PLANE, CONTROL_PLANE))
    defaults = {"workload": Workload(True, True, nodes=found)}
    return Observed(instances={each.key.name: each for each in views}, **{**defaults, **around})


def node_of(name: str, pods: int = 0, **options: Any) -> Node:
    labels: dict[str, str] | None = {} if name == PLANE else None
    return Node.parse(build_node(name, labels=labels, **options), pods)


def plan(observed: Observed, **spec: Any) -> NodePlan:
    return plan_nodes(cluster(**spec), observed, NOW)


def mark(observed: Observed, planned: NodePlan) -> Observed:
    """Show a cluster after the annotations that a plan writes."""
    found = dict(observed.instances)
    for step in (each.step for each in planned.actions if isinstance(each.step, Patch)):
        instance, (change,) = found[step.key.name], step.operations
        value = change.get("value", {})
        notes = value if isinstance(value, dict) else {**instance.annotations, REBUILDS: value}
        found[step.key.name] = replace(instance, annotations=notes)
    return replace(observed, instances=found)


def plan_marked(observed: Observed, **spec: Any) -> NodePlan:
    """Plan after the rebuild of a broken node was counted."""
    return plan(mark(observed, plan(observed, **spec)), **spec)


def cluster(**spec: Any) -> KubernetesCluster:
    return parse_cluster(**{"workers": 2, **spec})


def broken(name: str) -> Node:
    """Return a Node that is not ready for longer than it may be."""
    return node_of(name, ready=False, since=NOW - timedelta(minutes=10))


def kinds(result: NodePlan) -> list[tuple[str, str]]:
    return [(step.kind, step.node) for step in result.steps]


def test_settled_cluster_needs_nothing() -> None:
    assert plan(observe()) == NodePlan()


def test_excess_node_is_cordoned_then_drained_then_deleted() -> None:
    start = NOW - timedelta(seconds=5)

    first = plan(observe(), workers=1)
    second = plan(observe(node_of(WEB[1], 2, draining=start)), workers=1)
    third = plan(observe(node_of(WEB[1], 0, draining=start)), workers=1)

    assert kinds(first) == [(NodeStepKind.CORDON, WEB[1])] and first.actions == ()
    assert kinds(second) == [(NodeStepKind.EVICT, WEB[1])] and second.actions == ()
    (action,) = third.actions
    assert isinstance(action.step, Delete) and action.step.uid == "edge-web-1-uid"


def test_node_whose_pods_do_not_leave_goes_when_its_time_is_over() -> None:
    late = node_of(WEB[1], 2, draining=NOW - timedelta(seconds=301))

    (action,) = plan(observe(late), workers=1).actions

    assert isinstance(action.step, Delete)


def test_nothing_is_removed_while_the_cluster_does_not_answer() -> None:
    silent = observe(workload=Workload(asked=True))

    assert plan(silent, workers=1) == NodePlan()


def test_pool_that_does_not_drain_asks_nobody() -> None:
    silent = observe(workload=Workload(asked=True))
    pools = [{"name": "web", "count": 1, "size": "large", "drainSeconds": 0}]

    (action,) = plan(silent, pools=pools).actions

    assert isinstance(action.step, Delete)


def test_node_that_is_wanted_again_takes_pods_again() -> None:
    drained = node_of(WEB[1], draining=NOW - timedelta(seconds=5))

    assert kinds(plan(observe(drained))) == [(NodeStepKind.UNCORDON, WEB[1])]


def test_node_that_somebody_else_cordoned_stays_so() -> None:
    theirs = replace(node_of(WEB[1]), cordoned=True)

    assert plan(observe(theirs)) == NodePlan()


def test_broken_node_is_drained_and_then_rebuilt_once() -> None:
    start = NOW - timedelta(seconds=5)
    sick = broken(WEB[0])

    first = plan(observe(sick))
    ready = observe(replace(sick, cordoned=True, draining_since=start))
    (action,) = plan_marked(ready).actions

    assert kinds(first) == [(NodeStepKind.CORDON, WEB[0])]
    assert isinstance(action.step, Create) and action.step.kind == OPERATION
    name = action.step.key.name
    for phase in ("Running", "Failed"):
        made = OperationView.parse(build_operation(name, WEB[0], phase))
        assert plan_marked(replace(ready, operations={name: made})).actions == ()


def test_rebuild_takes_the_image_that_the_pool_has_now() -> None:
    sick = replace(broken(WEB[0]), cordoned=True, draining_since=NOW)
    image = {"registry": "docker://registry.example.com/node:new"}
    pools = [{"name": "web", "count": 2, "size": "large", "image": image}]

    (action,) = plan_marked(observe(sick), pools=pools).actions

    assert isinstance(action.step, Create)
    assert action.step.manifest["spec"]["rebuild"] == {"image": image}


def test_more_broken_nodes_than_the_budget_stop_all_repairs() -> None:
    both = observe(broken(WEB[0]), broken(WEB[1]))

    assert plan(both, health={"maxUnhealthy": 1}).steps == ()
    assert len(plan(both, health={"maxUnhealthy": 2}).steps) == 1


def test_next_node_waits_until_one_that_was_rebuilt_is_back() -> None:
    """An image that makes no node costs one node, though people asked for all to be rebuilt."""
    asked = {"recycle": [{"node": name, "token": "a"} for name in WEB[:2]]}
    done = view_instance(WEB[0], annotations={RECYCLED: "a"}, since=NOW - timedelta(minutes=1))
    machines = [done, view_instance(WEB[1])]
    rejoining = node_of(WEB[0], ready=False, since=NOW, draining=NOW)

    assert plan(observe(rejoining, instances=list(machines)), **asked).steps == ()
    back = plan(observe(node_of(WEB[0], draining=NOW), instances=list(machines)), **asked)
    assert kinds(back) == [(NodeStepKind.UNCORDON, WEB[0]), (NodeStepKind.CORDON, WEB[1])]


def test_two_broken_nodes_that_were_drained_do_not_wait_for_each_other() -> None:
    """As when a pool shrank, grew again, and both broke meanwhile."""
    drained = [replace(broken(name), cordoned=True, draining_since=NOW) for name in WEB[:2]]

    (action,) = plan_marked(observe(*drained), health={"maxUnhealthy": 2}).actions

    assert isinstance(action.step, Create) and action.step.kind == OPERATION


def test_budget_of_nothing_repairs_nothing() -> None:
    assert plan(observe(broken(WEB[0])), health={"maxUnhealthy": 0}).steps == ()


def test_broken_control_plane_is_left_alone() -> None:
    assert plan(observe(broken(PLANE))).steps == ()


def test_new_disk_is_another_cause() -> None:
    before = list_causes(cluster(), observe(broken(WEB[0])), NOW)
    rebuilt = replace(view_instance(WEB[0]), root_disk="other")
    after = list_causes(
        cluster(), observe(broken(WEB[0]), instances=[rebuilt, view_instance(WEB[1])]), NOW
    )

    assert before[0].operation != after[0].operation


def test_node_that_is_never_ready_is_not_rebuilt_without_end() -> None:
    """Each rebuild gives it another disk, which is another cause. Upstream: CAPI#7353."""
    held, rebuilds = observe(replace(broken(WEB[0]), cordoned=True, draining_since=NOW)), 0
    for disk in range(6):
        instance = replace(held.instances[WEB[0]], root_disk=f"disk-{disk}")
        held = replace(held, instances={**held.instances, WEB[0]: instance})
        held = mark(held, plan(held))
        rebuilds += sum(isinstance(each.step, Create) for each in plan(held).actions)
    assert rebuilds == 3
    status = build_status(cluster(), held, None, current=[], now=NOW)
    (told,) = [each for each in status["conditions"] if each["type"] == "Remediating"]
    assert (told["status"], told["reason"]) == ("False", "RebuildFailed")
    assert "spec.recycle" in told["message"]

    asked = {"recycle": [{"node": WEB[0], "token": "a"}]}
    assert any(isinstance(each.step, Create) for each in plan(held, **asked).actions)
    healthy = replace(held, workload=observe().workload)
    assert REBUILDS not in mark(healthy, plan(healthy)).instances[WEB[0]].annotations


def test_token_that_was_carried_out_asks_for_nothing() -> None:
    asked = {"recycle": [{"node": WEB[0], "token": "a"}]}
    done = view_instance(WEB[0], annotations={RECYCLED: "a"})

    assert kinds(plan(observe(), **asked)) == [(NodeStepKind.CORDON, WEB[0])]
    assert plan(observe(instances=[done, view_instance(WEB[1])]), **asked) == NodePlan()


def test_new_machine_is_not_rebuilt_for_a_token_that_was_there_before() -> None:
    asked = cluster(recycle=[{"node": WEB[0], "token": "a"}])
    built = build_machine(asked, WEB[0], asked.spec.pools[0])
    other = build_machine(asked, WEB[1], asked.spec.pools[0])

    assert built["metadata"]["annotations"] == {RECYCLED: "a"}
    assert "annotations" not in other["metadata"]


def test_disk_of_a_new_machine_has_the_storage_of_its_pool() -> None:
    shared = {"storageClassName": "fast", "accessModes": ["ReadWriteMany"], "volumeMode": "Block"}
    asked = cluster(
        controlPlane={"size": "medium", "endpoint": {"poolName": "public"}, "rootDisk": shared},
        pools=[
            {"name": "web", "count": 1, "size": "medium", "rootDisk": {"size": "40Gi"}},
            {"name": "db", "count": 1, "size": "medium"},
        ],
    )
    web, db = asked.spec.pools

    plane = build_machine(asked, "edge-control-plane-0", None)
    assert plane["spec"]["rootDisk"] == shared
    assert build_machine(asked, WEB[0], web)["spec"]["rootDisk"] == {"size": "40Gi"}
    assert "rootDisk" not in build_machine(asked, "edge-db-0", db)["spec"]


def test_node_without_machine_is_removed() -> None:
    gone = observe(node_of("edge-web-7"))

    assert kinds(plan(gone)) == [(NodeStepKind.REMOVE, "edge-web-7")]


def test_label_of_the_pool_reaches_a_node_that_exists() -> None:
    pools = [{"name": "web", "count": 2, "size": "large", "labels": {"tier": "web"}}]

    first, second = plan(observe(), pools=pools).steps

    assert isinstance(first, NodeStep)
    assert (first.kind, first.node, first.uid) == (NodeStepKind.MARK, WEB[0], "edge-web-0-node")
    assert second.node == WEB[1]
    assert first.marks is not None and first.marks.labels == {"tier": "web"}


def test_node_that_is_to_go_and_one_of_the_control_plane_get_no_labels() -> None:
    pools = [{"name": "web", "count": 0, "size": "large", "labels": {"tier": "web"}}]

    assert NodeStepKind.MARK not in {kind for kind, _ in kinds(plan(observe(), pools=pools))}


@pytest.mark.parametrize(
    "around",
    [
        {"workload": Workload(asked=True, message="no response")},
        {"busy": frozenset({WEB[0]})},
    ],
    ids=["cluster does not answer", "machine is being worked on"],
)
def test_node_is_not_rebuilt_while_it_cannot_be_drained(around: dict[str, Any]) -> None:
    """Without a view of its Nodes there would be nothing to drain, and pods would be lost."""
    asked = {"recycle": [{"node": WEB[0], "token": "a"}]}
    drained = node_of(WEB[0], draining=NOW - timedelta(seconds=900))

    assert plan(replace(observe(drained), **around), **asked).actions == ()
    (action,) = plan(observe(drained), **asked).actions
    assert isinstance(action.step, Create) and action.step.kind == OPERATION


def test_node_of_another_name_is_left_alone() -> None:
    assert plan(observe(node_of("brought-by-hand"))) == NodePlan()


@pytest.mark.parametrize(
    ("instance", "node", "state"),
    [
        (view_instance(WEB[0]), node_of(WEB[0]), State.HEALTHY),
        (view_instance(WEB[0]), broken(WEB[0]), State.BROKEN),
        (view_instance(WEB[0]), None, State.BROKEN),
        (view_instance(WEB[0], since=NOW - timedelta(minutes=5)), None, State.PENDING),
        (view_instance(WEB[0], since=NOW - timedelta(minutes=5)), broken(WEB[0]), State.PENDING),
        (view_instance(WEB[0], ready=False), node_of(WEB[0]), State.BROKEN),
        (replace(view_instance(WEB[0], ready=False), vmi_uid=""), None, State.PENDING),
        (replace(view_instance(WEB[0]), deleting=True), None, State.PENDING),
    ],
    ids=[
        "ready",
        "not ready for long",
        "never joined",
        "just started",
        "on its way up after a restart",
        "machine not ready",
        "machine cannot start",
        "going",
    ],
)
def test_node_is_judged(instance: InstanceView, node: Node | None, state: State) -> None:
    nodes = {} if node is None else {node.name: node}
    observed = Observed(workload=Workload(True, True, nodes=nodes))

    assert evaluate(instance, observed, cluster().spec.health, NOW).state is state


def test_health_says_when_it_changes_without_an_event() -> None:
    young = view_instance(WEB[0], since=NOW - timedelta(seconds=200))

    health = evaluate(young, Observed(workload=Workload(True, True)), cluster().spec.health, NOW)

    assert (health.state, health.seconds) == (State.PENDING, 1000)


def test_node_of_the_control_plane_stays_whatever_its_label_says() -> None:
    """A label is easily lost, and with a member of etcd the cluster may be."""
    views = [view_instance(name) for name in WEB[:2]]
    mislabeled = view_instance(PLANE, "web")
    observed = observe(instances=views)
    observed = replace(observed, instances={**observed.instances, PLANE: mislabeled})

    assert plan(observed) == NodePlan()
    assert not is_lost(cluster(), observed)


def test_node_that_cannot_be_changed_is_not_asked_again_and_again() -> None:
    first = plan(observe(), workers=1)

    assert look_again(first.seconds, poll=15, refused=False) == pytest.approx(0.1)
    assert look_again(first.seconds, poll=15, refused=True) == 15
    assert look_again(first.seconds, poll=None, refused=True) == pytest.approx(0.1)
    assert look_again(None, poll=15, refused=False) == 15
    assert look_again(None, poll=None, refused=False) is None
