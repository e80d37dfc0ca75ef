"""Claims that route all traffic of an address: every port and ICMP, in both directions. Pure.

A Service of Kubernetes routes only a list of ports. For Services with its label, cozy-proxy
(github.com/cozystack/cozy-proxy) replaces kube-proxy and translates the address to the address of
the one pod and back, for every port. It reads Endpoints and the status of the load balancer.
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
"""Labels that make cozy-proxy serve a Service instead of kube-proxy."""
ANNOTATIONS: Final[Mapping[str, str]] = {"networking.cozystack.io/wholeIP": "true"}
"""Annotations that make cozy-proxy route every port."""


def is_whole(claim: IPClaim) -> bool:
    """Return whether a claim requests all traffic of its address."""
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


def require_supported(plan: BindingPlan, reason: ClaimReason, problem: str) -> BindingPlan:
    """Change a binding to Pending if nothing can route the traffic as the claim requires it."""
    if plan.state not in (BindingState.BOUND, BindingState.PENDING):
        return plan
    return replace(plan, state=BindingState.PENDING, reason=reason, message=problem)
