"""What a cluster that is not ready says: the cause, not what follows from it."""

from __future__ import annotations

from dataclasses import replace

from libs.common.contracts.compute import InstanceView
from libs.common.contracts.ip_claims import IP_CLAIM, IpClaimView
from libs.common.kinds import Manifest, build_object
from operators.clusters.api.v1alpha1 import CONTROL_PLANE
from operators.clusters.observed import Observed
from operators.clusters.samples import (
    ADDRESS,
    NOW,
    authorities,
    parse_cluster,
    view_instance,
)
from operators.clusters.status import build_status

PLANE = "edge-control-plane-0"


def show_ready(observed: Observed) -> tuple[str, str]:
    """Return reason and message of the condition Ready."""
    status = build_status(parse_cluster(), observed, None, current=(), now=NOW)
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
