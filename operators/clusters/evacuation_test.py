"""A host that is drained: its nodes leave it one at a time, and etcd keeps its majority."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from libs.common.kinds import Manifest
from libs.common.plan import Create, Patch
from libs.contracts.compute import OPERATION, OperationView
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.causes import list_causes
from operators.clusters.fake_workloads import list_members
from operators.clusters.nodes import NodePlan, NodeStepKind, plan_nodes
from operators.clusters.observed import Node, Observed, Workload
from operators.clusters.resources import build_instance as build_machine
from operators.clusters.samples import (
    NOW,
    build_node,
    build_operation,
    parse_cluster,
    view_instance,
)
from operators.clusters.status import build_status

PLANES = [f"edge-control-plane-{slot}" for slot in range(3)]
WEB = ["edge-web-0", "edge-web-1"]
BEGAN = NOW - timedelta(seconds=5)


def observe(
    *evicting: str,
    planes: int = 3,
    migratable: bool = False,
    down: tuple[str, ...] = (),
    drained: tuple[str, ...] = (),
    reachable: bool = True,
    operations: dict[str, OperationView] | None = None,
) -> Observed:
    """Show a cluster some of whose machines must leave their host."""
    pools = dict.fromkeys(PLANES[:planes], CONTROL_PLANE) | dict.fromkeys(WEB, "web")
    nodes: dict[str, Node] = {}
    for name, pool in pools.items():
        labels: dict[str, str] | None = {} if pool == CONTROL_PLANE else None
        draining = BEGAN if name in drained else None
        nodes[name] = Node.parse(
            build_node(
                name,
                labels=labels,
                draining=draining,
                ready=name not in down,
                since=NOW if name in down else NOW - timedelta(minutes=30),
            )
        )
    members = {name: name for name in PLANES[:planes]}
    etcd = list_members(members, list(down))
    workload = Workload(True, True, nodes=nodes, version="v1.34.2", etcd=etcd)
    views = {
        name: view_instance(name, pool, evicting=name in evicting, migratable=migratable)
        for name, pool in pools.items()
    }
    if not reachable:
        workload = Workload(asked=True, message="no response")
    return Observed(instances=views, workload=workload, operations=operations or {})


def cluster(planes: int = 3) -> KubernetesCluster:
    return parse_cluster(count=planes, workers=2)


def plan(observed: Observed, planes: int = 3) -> NodePlan:
    return plan_nodes(cluster(planes), observed, NOW)


def kinds(result: NodePlan) -> list[tuple[str, str]]:
    return [(step.kind, step.node) for step in result.steps]


def operation_of(result: NodePlan) -> Manifest:
    (action,) = result.actions
    assert isinstance(action.step, Create) and action.step.kind == OPERATION
    return action.step.manifest


def condition(observed: Observed, type_: str, planes: int = 3) -> dict[str, Any]:
    status = build_status(cluster(planes), observed, None, current=[], now=NOW)
    (found,) = [each for each in status["conditions"] if each["type"] == type_]
    assert isinstance(found, dict)
    return found


def test_drain_of_a_host_waits_for_the_operator() -> None:
    asked = cluster()

    for pool in (None, asked.spec.pools[0]):
        assert build_machine(asked, "edge-x-0", pool)["spec"]["evictionStrategy"] == "External"


@pytest.mark.parametrize(("held", "changes"), [("LiveMigrateIfPossible", 1), ("None", 0)])
def test_machine_of_an_earlier_release_gets_the_strategy_unless_a_user_chose_one(
    held: str, changes: int
) -> None:
    observed = observe()
    old = view_instance(WEB[0], strategy=held)

    found = plan(replace(observed, instances={**observed.instances, WEB[0]: old})).actions

    steps = [action.step for action in found if isinstance(action.step, Patch)]
    assert len(steps) == changes
    assert all(step.operations[0]["value"] == "External" for step in steps)


@pytest.mark.parametrize("name", [PLANES[1], WEB[0]])
def test_node_is_drained_before_its_machine_restarts_on_another_host(name: str) -> None:
    first = plan(observe(name))
    second = plan(observe(name, drained=(name,)))

    assert kinds(first) == [(NodeStepKind.CORDON, name)] and first.actions == ()
    assert operation_of(second)["spec"] == {
        "type": "Reboot",
        "targetRef": {"name": name, "uid": f"{name}-uid"},
    }
    assert kinds(second) == [], "the member of etcd and the disk stay"


def test_node_takes_pods_again_after_its_machine_has_moved() -> None:
    assert kinds(plan(observe(drained=(WEB[0],)))) == [(NodeStepKind.UNCORDON, WEB[0])]


def test_machine_that_can_migrate_moves_without_a_drain_of_its_node() -> None:
    assert operation_of(plan(observe(WEB[0], migratable=True)))["spec"]["type"] == "Migrate"


def test_machine_whose_migration_failed_is_drained_and_restarted() -> None:
    name = operation_of(plan(observe(WEB[0], migratable=True)))["metadata"]["name"]
    failed = OperationView.parse(build_operation(name, WEB[0], "Failed"))
    around: dict[str, Any] = {"migratable": True, "operations": {name: failed}}

    assert kinds(plan(observe(WEB[0], **around))) == [(NodeStepKind.CORDON, WEB[0])]
    again = operation_of(plan(observe(WEB[0], drained=(WEB[0],), **around)))
    assert again["spec"]["type"] == "Reboot"


def test_nodes_of_two_hosts_leave_one_after_the_other() -> None:
    everything = (*PLANES, *WEB)
    first = plan(observe(*everything))
    assert kinds(first) == [(NodeStepKind.CORDON, PLANES[0])]

    started = operation_of(plan(observe(*everything, drained=(PLANES[0],))))
    name = started["metadata"]["name"]
    running = OperationView.parse(build_operation(name, PLANES[0], "Running"))
    during = plan(observe(*everything, drained=(PLANES[0],), operations={name: running}))
    assert during.actions == () and kinds(during) == []

    # Its machine runs elsewhere, and its node has not returned yet.
    moved = observe(*everything[1:], drained=(PLANES[0],), down=(PLANES[0],))
    assert kinds(plan(moved)) == []
    back = observe(*everything[1:], drained=(PLANES[0],))
    assert (NodeStepKind.CORDON, PLANES[1]) in kinds(plan(back)) or kinds(plan(back)) == [
        (NodeStepKind.UNCORDON, PLANES[0])
    ]


def test_control_plane_without_a_spare_member_stays_and_says_so() -> None:
    observed = observe(PLANES[0], down=(PLANES[2],), drained=(PLANES[0],))

    assert plan(observed).actions == ()
    found = condition(observed, "Remediating")
    assert (found["status"], found["reason"]) == ("True", "Evacuating")
    assert "host host-1 of edge-control-plane-0 is being drained" in found["message"]
    assert "edge-control-plane-2 is not ready" in found["message"]


@pytest.mark.parametrize("reachable", [True, False])
def test_only_node_of_a_control_plane_moves_without_a_drain(reachable: bool) -> None:
    started = operation_of(plan(observe(PLANES[0], planes=1, reachable=reachable), planes=1))

    assert started["spec"]["type"] == "Reboot"


def test_node_stays_while_its_cluster_does_not_answer_and_the_remedy_is_named() -> None:
    observed = observe(WEB[0], reachable=False)

    assert plan(observed) == NodePlan()
    assert "create an Operation of type Reboot" in condition(observed, "Remediating")["message"]


def test_node_that_stays_broken_does_not_hold_up_the_drain_of_a_host() -> None:
    """It was rebuilt from an image that makes no node, for example."""
    observed = observe(WEB[1])
    sick = Node.parse(build_node(WEB[0], ready=False, draining=BEGAN))
    nodes = {**observed.workload.nodes, WEB[0]: sick}
    observed = replace(observed, workload=replace(observed.workload, nodes=nodes))
    (repair,) = [each for each in list_causes(cluster(), observed, NOW) if each.node == WEB[0]]
    failed = OperationView.parse(build_operation(repair.operation, WEB[0], "Failed"))
    observed = replace(observed, operations={repair.operation: failed})

    assert (NodeStepKind.CORDON, WEB[1]) in kinds(plan(observed))


def test_failed_move_is_reported_with_a_remedy() -> None:
    name = operation_of(plan(observe(WEB[0], drained=(WEB[0],))))["metadata"]["name"]
    failed = OperationView.parse(build_operation(name, WEB[0], "Failed"))

    found = condition(observe(WEB[0], drained=(WEB[0],), operations={name: failed}), "Remediating")

    assert found["status"] == "False"
    assert f"delete Operation {name} to try again" in found["message"]


@pytest.mark.parametrize(
    ("hosts", "shown"),
    [
        (("a", "b", "c"), "True"),
        (("a", "", "c"), "True"),
        (("a", "b", "a"), "False"),
    ],
)
def test_host_with_which_etcd_loses_its_majority_is_named(
    hosts: tuple[str, ...], shown: str
) -> None:
    observed = observe()
    views = {
        name: replace(observed.instances[name], node=host)
        for name, host in zip(PLANES, hosts, strict=True)
    }

    found = condition(replace(observed, instances=views), "ControlPlaneSpread")

    assert found["status"] == shown
    if shown == "False":
        assert "edge-control-plane-0, edge-control-plane-2 run on host a" in found["message"]
