"""What a cluster that is not ready says: the cause, not what follows from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import SECRET, Manifest, build_object
from libs.contracts.compute import InstanceView
from libs.contracts.ip_claims import IP_CLAIM, IpClaimView
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.fake_workloads import join
from operators.clusters.observed import Observed, Workload
from operators.clusters.reconcile import plan_cluster
from operators.clusters.samples import (
    ADDRESS,
    NOW,
    SameIssuer,
    authorities,
    build_cluster,
    parse_cluster,
    view_instance,
    view_network,
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
    return Observed(
        authorities=authorities(),
        claim=IpClaimView.parse(claim),
        instances=instances,
        network=view_network(),
    )


def test_cluster_without_an_address_waits_for_that() -> None:
    reason, message = show_ready(observe(None, address=""))

    assert reason == "WaitingForAddress"
    assert "IPPool public" in message


def test_cluster_whose_first_machine_cannot_start_says_why() -> None:
    """That the address has no endpoint follows from it."""
    plane = replace(
        view_instance(PLANE, CONTROL_PLANE, ready=False), message="there is no InstanceSize huge"
    )

    assert show_ready(observe(plane)) == (
        "WaitingForControlPlane",
        f"the first node {PLANE}: there is no InstanceSize huge",
    )


def show(
    observed: Observed, type_: str, cluster: KubernetesCluster | None = None, now: datetime = NOW
) -> Manifest:
    """Return a condition of a cluster."""
    status = build_status(cluster or parse_cluster(), observed, None, current=(), now=now)
    return next(dict(each) for each in status["conditions"] if each["type"] == type_)


def count(observed: Observed, cluster: KubernetesCluster) -> tuple[str, str, int]:
    """Return the columns of a cluster, and the number of nodes of its pool that are ready."""
    status = build_status(cluster, observed, None, current=(), now=NOW)
    (pool,) = status["pools"]
    return status["controlPlane"]["summary"], status["nodes"]["summary"], pool["ready"]


def observe_nodes(workload: Workload) -> Observed:
    """Show a cluster whose machines all run."""
    machines = [view_instance(PLANE, CONTROL_PLANE), view_instance("edge-web-0")]
    found = {each.key.name: each for each in machines}
    return replace(observe(machines[0]), instances=found, workload=workload)


SILENT = Workload(asked=True, message="no response from the API at https://edge-api:6443")


def test_no_node_counts_before_the_api_has_answered() -> None:
    """A machine that runs is no node yet."""
    assert count(observe_nodes(SILENT), parse_cluster()) == ("0/1", "0/1", 0)


def test_count_is_unknown_while_the_api_does_not_answer() -> None:
    assert count(observe_nodes(SILENT), parse_begun(1)) == ("?/1", "?/1", 0)


def test_nodes_count_once_the_api_says_that_they_are_ready() -> None:
    up = Workload(True, True, nodes={name: join(name, "") for name in (PLANE, "edge-web-0")})

    assert count(observe_nodes(up), parse_begun(1)) == ("1/1", "1/1", 1)


@pytest.mark.parametrize(
    ("seconds", "reason", "words"),
    [
        (1199, "WaitingForControlPlane", "waiting for kubeadm"),
        (1200, "BootstrapTimedOut", "no response from the API at https://edge-api:6443"),
    ],
)
def test_control_plane_that_never_answers_times_out(seconds: int, reason: str, words: str) -> None:
    plane = view_instance(PLANE, CONTROL_PLANE, since=NOW)
    observed = replace(observe(plane), workload=SILENT)

    shown = show(observed, "ControlPlaneReady", now=NOW + timedelta(seconds=seconds))

    assert (shown["status"], shown["reason"]) == ("False", reason)
    assert words in shown["message"]


@pytest.mark.parametrize(
    ("days", "status", "reason"),
    [(89, "True", "Expiring"), (91, "False", "Valid"), (None, "Unknown", "NotChecked")],
)
def test_certificate_that_expires_soon_is_reported(
    days: int | None, status: str, reason: str
) -> None:
    expires = None if days is None else NOW + timedelta(days=days)
    observed = observe_nodes(Workload(True, True, certificate_expires=expires))

    shown = show(observed, "CertificatesExpiring")

    assert (shown["status"], shown["reason"]) == (status, reason)


def test_authority_that_expires_soon_is_reported_by_name_and_day() -> None:
    """Renewal does not help: what an authority signed ends with it."""
    now = datetime(2035, 12, 15, tzinfo=UTC)
    served = Workload(True, True, certificate_expires=now + timedelta(days=900))

    shown = show(observe_nodes(served), "CertificatesExpiring", now=now)

    assert (shown["status"], shown["reason"]) == ("True", "Expiring")
    assert "certificate authority ca expires on 2036-02-27" in shown["message"]


BEGUN = build_conditions([], [Condition.true("Initialized", "Reachable")], generation=1, now=NOW)


def parse_begun(count: int = 3) -> KubernetesCluster:
    """Build a cluster whose API has answered."""
    return KubernetesCluster.parse({**build_cluster(count=count), "status": {"conditions": BEGUN}})


def test_cluster_whose_whole_control_plane_is_gone_does_not_say_that_it_is_being_made() -> None:
    assert show_ready(observe(None), parse_begun()) == (
        "ControlPlaneLost",
        "every machine of the control plane is lost, including the data of the cluster",
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
        "Secret edge-authorities is missing although the cluster exists; restore it",
    )


def test_machine_that_is_stopped_is_no_node_that_is_ready() -> None:
    stopped = replace(view_instance(PLANE, CONTROL_PLANE), stopped=True)

    assert not observe(stopped).is_ready(stopped)
