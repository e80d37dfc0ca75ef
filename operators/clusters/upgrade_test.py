"""A cluster gets the version of its spec: which step follows which, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from libs.common.conditions import Condition
from libs.common.plan import Apply, Create, Step
from libs.contracts.compute import InstanceView, OperationView
from libs.contracts.ip_claims import IpClaimView
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.causes import list_causes
from operators.clusters.etcd import Etcd, Member
from operators.clusters.fake_workloads import list_members
from operators.clusters.naming import user_data_name
from operators.clusters.nodes import plan_nodes
from operators.clusters.nodes_test import mark
from operators.clusters.observed import Node, Observed, Workload
from operators.clusters.progress import evaluate_version, list_versions
from operators.clusters.reconcile import list_endpoints, plan_cluster
from operators.clusters.replacement import find_member, list_lost
from operators.clusters.samples import (
    ADDRESS,
    NOW,
    VERSION,
    SameIssuer,
    authorities,
    build_cluster,
    build_node,
    build_operation,
    parse_cluster,
    view_instance,
    view_network,
)
from operators.clusters.status import build_status

NEXT = "v1.35.1"
PLANES = [f"edge-{CONTROL_PLANE}-{slot}" for slot in range(3)]
WEB = ["edge-web-0", "edge-web-1"]
DRAINED = NOW - timedelta(seconds=10)


def cluster(**spec: Any) -> KubernetesCluster:
    return parse_cluster(**{"count": 3, "workers": 2, "version": NEXT, **spec})


def node(name: str, version: str = VERSION, pods: int = 0, **options: Any) -> Node:
    labels: dict[str, str] | None = {} if name in PLANES else None
    return Node.parse(build_node(name, labels=labels, version=version, **options), pods)


def observe(
    *nodes: Node,
    etcd: Etcd | None = None,
    kubeadm: str = NEXT,
    proxy: str = VERSION,
    without: Sequence[str] = (),
    operations: Sequence[OperationView] = (),
    **options: Any,
) -> Observed:
    """Show three nodes of the control plane and two of a pool with the old version."""
    held = {name: node(name) for name in (*PLANES, *WEB)} | {each.name: each for each in nodes}
    machines = {name: view(name) for name in (*PLANES, *WEB) if name not in without}
    workload = Workload(
        True,
        True,
        nodes=held,
        version=kubeadm,
        proxy_version=proxy,
        etcd=etcd if etcd is not None else list_members(PLANES),
    )
    return Observed(
        instances=machines,
        workload=workload,
        network=view_network(),
        operations={each.key.name: each for each in operations},
        **options,
    )


def view(name: str) -> InstanceView:
    return view_instance(name, CONTROL_PLANE if name in PLANES else "web")


def upgraded(*names: str) -> list[Node]:
    return [node(name, NEXT) for name in names]


def steps(observed: Observed, **spec: Any) -> list[str]:
    """Return the next steps as logs show them, except labels of nodes."""
    plan = plan_nodes(cluster(**spec), observed, NOW)
    plan = plan_nodes(cluster(**spec), mark(observed, plan), NOW)
    rebuilds = [
        f"rebuild {action.step.manifest['spec']['targetRef']['name']}"
        for action in plan.actions
        if isinstance(action.step, Create)
    ]
    return [str(step) for step in plan.steps] + rebuilds


def evaluate(observed: Observed, **spec: Any) -> Condition:
    held = cluster(**spec)
    status = build_status(held, observed, None, current=[], now=NOW)
    found = evaluate_version(held, observed, NOW)
    shown = next(each for each in status["conditions"] if each["type"] == "UpToDate")
    assert shown["message"] == found.message
    return found


def finish(observed: Observed, name: str, phase: str) -> Observed:
    """Let the Operation of the upgrade of a node be over."""
    cause = next(each for each in list_causes(cluster(), observed, NOW) if each.node == name)
    operation = OperationView.parse(build_operation(cause.operation, name, phase))
    return replace(observed, operations={operation.key.name: operation})


def test_version_of_kubeadm_is_set_before_any_node_is_touched() -> None:
    observed = observe(kubeadm=VERSION)

    assert steps(observed) == [f"set the version of kubeadm to {NEXT}"]
    found = evaluate(observed)
    assert (found.status, found.reason) == ("False", Reason.UPGRADING)
    assert found.message == (
        f"0 of 5 nodes have {NEXT}: ConfigMap kube-system/kubeadm-config gets the version first"
    )


def test_node_of_the_control_plane_loses_its_pods_then_its_member_then_its_disk() -> None:
    assert steps(observe()) == [f"cordon Node {PLANES[0]}"]

    draining = observe(node(PLANES[0], pods=1, draining=DRAINED))
    assert steps(draining) == [f"evict Node {PLANES[0]}"]
    assert evaluate(draining).message == (
        f"0 of 5 nodes have {NEXT}: {PLANES[0]} is being drained, for 300 s at most"
    )

    empty = observe(node(PLANES[0], draining=DRAINED))
    assert steps(empty) == [f"remove member {PLANES[0]} of etcd"]

    removed = observe(node(PLANES[0], draining=DRAINED, ready=False), etcd=list_members(PLANES[1:]))
    assert steps(removed) == [f"rebuild {PLANES[0]}"]


def test_pods_that_do_not_leave_are_waited_for_as_long_as_the_pool_says() -> None:
    long_ago = NOW - timedelta(seconds=301)

    held = observe(node(PLANES[0], pods=1, draining=long_ago))

    assert steps(held) == [f"remove member {PLANES[0]} of etcd"]


def test_api_is_not_routed_to_a_node_that_is_about_to_lose_its_etcd() -> None:
    observed = observe(node(PLANES[0], draining=DRAINED))

    assert [each.key.name for each in list_endpoints(cluster(), observed)] == PLANES[1:]


def test_next_node_waits_until_the_one_before_is_back_and_its_member_votes() -> None:
    away = node(PLANES[0], NEXT, draining=DRAINED, ready=False, since=DRAINED)
    assert steps(observe(away, etcd=list_members(PLANES[1:]))) == []

    back = upgraded(PLANES[0])
    learner = Member("4", PLANES[0], "", is_learner=True, is_healthy=True)
    joining = Etcd((learner, *list_members(PLANES[1:]).members))
    waiting = observe(*back, etcd=joining)
    assert steps(waiting) == []
    found = evaluate(waiting)
    assert found.reason == Reason.UPGRADE_WAITING
    assert found.message == (
        f"1 of 5 nodes have {NEXT}: {PLANES[1]} waits: the member {PLANES[0]} of etcd does not "
        "vote yet"
    )

    assert steps(observe(*back)) == [f"cordon Node {PLANES[1]}"]


def test_kube_proxy_and_then_the_pools_follow_the_control_plane() -> None:
    done = upgraded(*PLANES)
    assert steps(observe(*done))[0] == f"set the version of kube-proxy to {NEXT}"

    first = observe(*done, proxy=NEXT)
    assert steps(first) == [f"cordon Node {WEB[0]}"]
    drained = observe(*done, node(WEB[0], draining=DRAINED), proxy=NEXT)
    assert steps(drained) == [f"rebuild {WEB[0]}"]
    last = observe(*done, *upgraded(WEB[0]), proxy=NEXT)
    assert steps(last) == [f"cordon Node {WEB[1]}"]


def test_cluster_whose_nodes_all_have_the_version_is_up_to_date() -> None:
    done = observe(*upgraded(*PLANES, *WEB), proxy=NEXT)

    assert steps(done) == []
    assert (evaluate(done).status, evaluate(done).message) == ("True", f"every node has {NEXT}")


def test_status_shows_the_nodes_of_each_version() -> None:
    shown = list_versions(observe(*upgraded(PLANES[0])))

    assert [(each.version, each.count) for each in shown] == [(VERSION, 4), (NEXT, 1)]
    assert shown[1].nodes == [PLANES[0]]


@pytest.mark.parametrize("kind", ["created", "rebuilt"])
def test_node_of_a_pool_gets_no_kubelet_that_is_newer_than_the_api_server(kind: str) -> None:
    """The image of the spec has the new version already."""
    behind = upgraded(*PLANES[:2])
    broken = node(WEB[0], ready=False, since=NOW - timedelta(hours=1), draining=DRAINED)
    observed = observe(*behind, broken, etcd=list_members(PLANES[:2]), without=WEB[1:])
    if kind == "rebuilt":
        assert f"rebuild {WEB[0]}" not in steps(observed)
        return
    claimed = replace(observed, authorities=authorities(), claim=_claim())

    plan = plan_cluster(cluster(), claimed, SameIssuer(), NOW)

    made = {action.step.key.name for action in plan.actions if isinstance(action.step, Create)}
    assert WEB[1] not in made
    whole = replace(
        claimed,
        workload=replace(claimed.workload, nodes={each.name: each for each in upgraded(*PLANES)}),
    )
    plan = plan_cluster(cluster(), whole, SameIssuer(), NOW)
    made = {action.step.key.name for action in plan.actions if isinstance(action.step, Create)}
    assert WEB[1] in made


def test_broken_nodes_beyond_the_budget_stop_the_upgrade_of_pools() -> None:
    broken = [node(name, ready=False, since=NOW - timedelta(hours=1)) for name in WEB]
    observed = observe(*upgraded(*PLANES), *broken, proxy=NEXT)

    assert steps(observed) == []
    assert "BudgetExceeded" in {
        each["reason"]
        for each in build_status(cluster(), observed, None, current=[], now=NOW)["conditions"]
    }


def test_image_without_the_version_costs_one_node() -> None:
    observed = observe(*upgraded(*PLANES), proxy=NEXT)
    started = view_instance(WEB[0], since=NOW - timedelta(hours=1))
    tried = finish(observed, WEB[0], "Succeeded")
    tried = replace(tried, instances={**tried.instances, WEB[0]: started})

    assert steps(tried) == []
    found = evaluate(tried)
    assert found.reason == Reason.UPGRADE_FAILED
    assert (
        found.message
        == f"3 of 5 nodes have {NEXT}: {WEB[0]} was rebuilt and has {VERSION}; set an image that"
        f" has {NEXT} in spec.image or in the image of its pool"
    )
    other = {"registry": "docker://registry.example.com/kubernetes-node:fixed"}
    assert steps(tried, image=other) == [f"cordon Node {WEB[0]}"]


def test_rebuild_that_failed_says_why_and_stops_the_upgrade() -> None:
    observed = observe()
    tried = finish(observed, PLANES[0], "Failed")

    assert steps(tried) == []
    found = evaluate(tried)
    assert found.reason == Reason.UPGRADE_FAILED
    assert f"{PLANES[0]} could not be rebuilt" in found.message


def test_node_that_shows_its_old_version_after_the_rebuild_is_waited_for() -> None:
    """A Node says what its kubelet said last."""
    observed = observe(*upgraded(*PLANES), proxy=NEXT)
    tried = finish(observed, WEB[0], "Succeeded")
    restarted = view_instance(WEB[0], since=NOW - timedelta(seconds=5))
    tried = replace(tried, instances={**tried.instances, WEB[0]: restarted})

    assert steps(tried) == []
    assert f"waiting until {WEB[0]} is back" in evaluate(tried).message


def test_unknown_versions_are_reported_and_nothing_is_done() -> None:
    unknown = [node(name, "unknown") for name in (*PLANES, *WEB)]

    assert steps(observe(*unknown)) == []
    assert evaluate(observe(*unknown)).reason == Reason.VERSION_UNKNOWN


def test_cluster_without_a_configuration_of_kubeadm_waits() -> None:
    observed = observe(kubeadm="")

    assert steps(observed) == []
    assert "kubeadm-config cannot be read" in evaluate(observed).message


# A lost node of the control plane.


def test_lost_node_leaves_etcd_before_it_is_created_again() -> None:
    lost = node(PLANES[1], ready=False)
    around = {"version": VERSION}
    held = observe(
        lost, etcd=list_members(PLANES, away=[PLANES[1]]), without=[PLANES[1]], kubeadm=VERSION
    )
    assert steps(held, **around) == [f"remove member {PLANES[1]} of etcd"]
    assert not creates(held, PLANES[1], **around)

    removed = observe(
        lost,
        etcd=list_members([PLANES[0], PLANES[2]]),
        without=[PLANES[1]],
        kubeadm=VERSION,
    )
    assert steps(removed, **around) == [f"remove Node {PLANES[1]}"]
    assert not creates(removed, PLANES[1], **around)

    nodes = {name: each for name, each in removed.workload.nodes.items() if name != PLANES[1]}
    vacant = replace(removed, workload=replace(removed.workload, nodes=nodes))
    assert steps(vacant, **around) == []
    assert creates(vacant, PLANES[1], **around)


@pytest.mark.parametrize(
    ("etcd", "words"),
    [
        (Etcd(problem="no answer"), "the members of etcd cannot be listed: no answer"),
        (list_members(PLANES, away=PLANES[1:]), "etcd would lose its majority"),
        (list_members(PLANES[:2], away=[PLANES[1]]), "1 voting member"),
    ],
    ids=["unknown", "another one is lost", "two members"],
)
def test_member_stays_if_etcd_would_be_lost_without_it(etcd: Etcd, words: str) -> None:
    observed = observe(
        node(PLANES[1], ready=False), etcd=etcd, without=[PLANES[1]], kubeadm=VERSION
    )

    assert steps(observed, version=VERSION) == []
    status = build_status(cluster(version=VERSION), observed, None, current=[], now=NOW)
    condition = next(each for each in status["conditions"] if each["type"] == "ControlPlaneReady")
    assert condition["status"] == "False"
    assert words in condition["message"]


def test_broken_node_of_the_control_plane_is_replaced() -> None:
    since = NOW - timedelta(hours=1)
    broken = node(PLANES[2], ready=False, since=since)
    around: dict[str, Any] = {
        "etcd": list_members(PLANES, away=[PLANES[2]]),
        "kubeadm": VERSION,
    }

    assert steps(observe(broken, **around), version=VERSION) == [f"cordon Node {PLANES[2]}"]
    drained = node(PLANES[2], ready=False, since=since, draining=DRAINED)
    expected = [f"remove member {PLANES[2]} of etcd"]
    assert steps(observe(drained, **around), version=VERSION) == expected
    kept = {"health": {"maxUnhealthy": 0}}
    assert steps(observe(broken, **around), version=VERSION, **kept) == []


def test_only_node_of_a_control_plane_is_never_rebuilt() -> None:
    since = NOW - timedelta(hours=1)
    broken = node(PLANES[0], ready=False, since=since)
    observed = observe(broken, etcd=Etcd(), without=PLANES[1:], kubeadm=VERSION)

    assert steps(observed, count=1, version=VERSION)[:1] != [f"cordon Node {PLANES[0]}"]


def creates(observed: Observed, name: str, **spec: Any) -> bool:
    held = replace(observed, authorities=authorities(), claim=_claim())
    begun = cluster(**spec)
    plan = plan_cluster(begun, held, SameIssuer(), NOW)
    return any(
        isinstance(action.step, Create) and action.step.key.name == name for action in plan.actions
    )


def _claim() -> Any:

    return IpClaimView.parse({"metadata": {"name": "edge-api"}, "status": {"address": ADDRESS}})


def test_cache_without_the_machines_does_not_set_the_version_of_kube_proxy() -> None:
    """The cache of a former leader may be from before the control plane existed."""
    observed = observe(without=(*PLANES, *WEB))

    assert "set the version of kube-proxy to v1.35.1" not in steps(observed)


def test_no_node_of_a_pool_is_created_while_the_versions_are_unknown() -> None:
    observed = replace(
        observe(*upgraded(*PLANES), proxy=NEXT, without=[WEB[1]]),
        authorities=authorities(),
        claim=_claim(),
    )
    silent = replace(observed, workload=Workload(asked=True, message="no answer"))

    assert WEB[1] in created(observed)
    assert WEB[1] not in created(silent)
    assert user_data_name(WEB[0]) in applied(silent), "a node that exists keeps its user data"


def created(observed: Observed) -> set[str]:
    return {step.key.name for step in first_steps(observed) if isinstance(step, Create)}


def applied(observed: Observed) -> set[str]:
    return {step.key.name for step in first_steps(observed) if isinstance(step, Apply)}


def first_steps(observed: Observed) -> list[Step]:
    """Return the next steps for a cluster whose API has answered before."""
    manifest = build_cluster(count=3, workers=2, version=NEXT)
    initialized = {
        "type": "Initialized",
        "status": "True",
        "reason": "Initialized",
        "message": "",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
    begun = KubernetesCluster.parse({**manifest, "status": {"conditions": [initialized]}})
    return [action.step for action in plan_cluster(begun, observed, SameIssuer(), NOW).actions]


@pytest.mark.parametrize("all_known", [True, False])
def test_member_of_a_lost_machine_that_never_started_is_removed(all_known: bool) -> None:
    """Upstream: kubernetes-sigs/cluster-api#13221."""
    members = (*list_members(PLANES[:2]).members, Member("7", "", "10.0.0.9"))
    seen = observe(etcd=Etcd(members), without=PLANES[2:])
    nodes = {name: each for name, each in seen.workload.nodes.items() if name != PLANES[2]}
    addresses = {name: f"10.0.0.{slot}" for slot, name in enumerate(seen.instances)}
    if not all_known:
        addresses[PLANES[1]] = ""
    seen = replace(
        seen,
        workload=replace(seen.workload, nodes=nodes),
        instances={
            name: replace(each, private_ip=addresses[name]) for name, each in seen.instances.items()
        },
    )

    assert list_lost(cluster(), seen) == (PLANES[2:] if all_known else [])
    member = find_member(seen, PLANES[2])
    assert (member.id if member is not None else "") == ("7" if all_known else "")
    joining = {**seen.instances, PLANES[2]: replace(view(PLANES[2]), private_ip="10.0.0.9")}
    assert list_lost(cluster(), replace(seen, instances=joining)) == []
