"""What a cluster that is not ready says: the cause, not what follows from it."""

from __future__ import annotations

from dataclasses import replace

from libs.common.conditions import Condition, build_conditions
from libs.common.contracts.compute import InstanceView
from libs.common.contracts.ip_claims import IP_CLAIM, IpClaimView
from libs.common.kinds import SECRET, Manifest, build_object
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.observed import Observed
from operators.clusters.reconcile import plan_cluster
from operators.clusters.samples import (
    ADDRESS,
    NOW,
    SameIssuer,
    authorities,
    build_cluster,
    parse_cluster,
    view_instance,
)
from operators.clusters.status import build_status

PLANE = "edge-control-plane-0"


def show_ready(observed: Observed, cluster: KubernetesCluster | None = None) -> tuple[str, str]:
    """Return reason and message of the condition Ready."""
    status = build_status(cluster or parse_cluster(), observed, None, current=(), now=NOW)
    ready: Manifest = status["conditions"][0]
    assert (ready["type"], ready["status"]) == ("Ready", "False")
    return ready["reason"], ready["message"]


def observe(plane: InstanceView | None, address: str = ADDRESS) -> Observed:
    """Show a cluster that has not begun."""
    status = {"address": address} if address else {}
    claim = build_object(IP_CLAIM, "edge-api", "default", spec={}, status=status)
    instances = {} if plane is None else {plane.key.name: plane}
    return Observed(authorities=authorities(), claim=IpClaimView.parse(claim), instances=instances)


def test_cluster_without_an_address_waits_for_that() -> None:
    reason, message = show_ready(observe(None, address=""))

    assert reason == "WaitingForAddress"
    assert "IPPool public" in message


def test_cluster_whose_first_machine_cannot_start_says_why() -> None:
    """That the address leads nowhere follows from it."""
    plane = replace(
        view_instance(PLANE, CONTROL_PLANE, ready=False), message="there is no InstanceSize huge"
    )

    assert show_ready(observe(plane)) == (
        "WaitingForControlPlane",
        f"the first node {PLANE}: there is no InstanceSize huge",
    )


BEGUN = build_conditions([], [Condition.true("Initialized", "Reachable")], generation=1, now=NOW)


def parse_begun(count: int = 3) -> KubernetesCluster:
    """Build a cluster whose API has answered."""
    return KubernetesCluster.parse({**build_cluster(count=count), "status": {"conditions": BEGUN}})


def test_cluster_whose_whole_control_plane_is_gone_does_not_say_that_it_is_being_made() -> None:
    assert show_ready(observe(None), parse_begun()) == (
        "ControlPlaneLost",
        "the control plane is gone, and the data of the cluster with it",
    )


def test_cluster_that_has_not_begun_gets_other_authorities_where_they_are_gone() -> None:
    """Nobody would say that they are missing: nothing of it lives."""
    held = {(SECRET, "edge-kubeconfig"): build_object(SECRET, "edge-kubeconfig", "default")}
    observed = replace(observe(None), authorities=None, objects=held)

    ((step,),) = plan_cluster(parse_cluster(), observed, SameIssuer(), NOW).batches
    assert str(step) == "create Secret default/edge-authorities"

    assert plan_cluster(parse_begun(), observed, SameIssuer(), NOW).batches == []
    assert show_ready(observed, parse_begun()) == (
        "PKILost",
        "Secret edge-authorities is gone, and the cluster lives; restore it",
    )


def test_machine_that_is_stopped_is_no_node_that_is_ready() -> None:
    stopped = replace(view_instance(PLANE, CONTROL_PLANE), stopped=True)

    assert not observe(stopped).is_ready(stopped)
