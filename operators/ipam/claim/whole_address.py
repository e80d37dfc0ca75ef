"""Claims whose whole address is routed: every port and ICMP, and the traffic of the target; pure.

A Service of Kubernetes has a list of ports. cozy-proxy (github.com/cozystack/cozy-proxy) serves
Services that have its label instead of kube-proxy, and translates the address to the address of the
one pod and back, whatever the port. It reads Endpoints and the status of the load balancer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from libs.common.labels import SERVICE_PROXY
from operators.ipam.api.v1alpha1.claims import BindingState, ClaimReason, IPClaim, Traffic
from operators.ipam.claim.announcement import ANNOUNCERS
from operators.ipam.claim.binding import BindingPlan
from operators.ipam.claim.resources import PortMap
from operators.ipam.settings import Settings

WHOLE_PORTS: Final = (PortMap("all", "TCP", 65535, 65535),)
"""Ports of the Service of a whole address: the API server requires one, cozy-proxy ignores it."""
LABELS: Final[Mapping[str, str]] = {SERVICE_PROXY: "cozy-proxy"}
"""Labels by which cozy-proxy serves a Service, and kube-proxy does not."""
ANNOTATIONS: Final[Mapping[str, str]] = {"networking.cozystack.io/wholeIP": "true"}
"""Annotations by which cozy-proxy passes every port."""


def is_whole(claim: IPClaim) -> bool:
    """Return whether a claim asks for its whole address."""
    return claim.spec.traffic is Traffic.ALL


def explain_unsupported(settings: Settings, addresses: Sequence[str]) -> str:
    """Return why no whole address can be routed; empty if it can."""
    if not settings.cozy_proxy:
        return "spec.traffic is All, which needs cozy-proxy and settings.cozyProxy of the operator"
    if not ANNOUNCERS[settings.announcement].balances:
        return (
            "spec.traffic is All, and cozy-proxy reads the address that a load balancer reports; "
            f"settings.announcement of the operator is {settings.announcement}"
        )
    if any(":" in address for address in addresses):
        return "spec.traffic is All, and cozy-proxy routes IPv4 only; use an IPv4 pool"
    return ""


def require_supported(plan: BindingPlan, problem: str) -> BindingPlan:
    """Call no whole address bound that nothing routes."""
    if plan.state not in (BindingState.BOUND, BindingState.PENDING):
        return plan
    reason = ClaimReason.WHOLE_ADDRESS_UNSUPPORTED
    return replace(plan, state=BindingState.PENDING, reason=reason, message=problem)
