"""How the Service of a claim asks for its address, and whether a load balancer announces it; pure.

An address is reachable only once something outside this operator accepts it: a load balancer
writes the addresses that it announces into `status.loadBalancer.ingress` of the Service. Only that
field says whether it announces the address of the claim, another one, or none.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from libs.common.conditions import Condition, find_condition
from libs.common.kinds import Manifest
from libs.common.reading import maps_at, text_at
from operators.ipam.api.v1alpha1.claims import BindingState, ClaimCondition, ClaimReason
from operators.ipam.claim.binding import BindingPlan
from operators.ipam.settings import Announcement

_CILIUM_CONDITION: Final = "cilium.io/IPAMRequestSatisfied"
"""Condition on a Service by which Cilium refuses addresses (docs.cilium.io, LB IPAM)."""


@dataclass(frozen=True, slots=True)
class Announcer:
    """A kind of load balancer, as a Service addresses it.

    Attributes:
        annotation: Annotation that asks for addresses, separated by commas; empty for none.
        balances: Whether the Service is of type LoadBalancer, whose status reports addresses.
        follows_endpoint: Whether the announcing node is always one that has an endpoint, so that
            `externalTrafficPolicy: Local` loses no packet.
        refusal_event: Reason of the Events in which it refuses an address; empty for none.
    """

    annotation: str = ""
    balances: bool = True
    follows_endpoint: bool = False
    refusal_event: str = ""


ANNOUNCERS: Final[Mapping[Announcement, Announcer]] = {
    # metallb.io/usage: "Requesting specific IPs". With the policy Local its layer 2 mode elects
    # among the nodes with an endpoint, and its BGP mode announces from these nodes alone.
    Announcement.METALLB: Announcer(
        "metallb.io/loadBalancerIPs", follows_endpoint=True, refusal_event="AllocationFailed"
    ),
    # docs.cilium.io/en/stable/network/lb-ipam: "Requesting IPs". Its layer 2 announcements elect a
    # node whether or not it has an endpoint.
    Announcement.CILIUM: Announcer("lbipam.cilium.io/ips"),
    # kube-vip.io/docs/usage/kubernetes-services. Without an election per Service one node has all
    # addresses.
    Announcement.KUBE_VIP: Announcer("kube-vip.io/loadbalancerIPs"),
    Announcement.LOAD_BALANCER_IP: Announcer(),
    Announcement.EXTERNAL_IPS: Announcer(balances=False),
    Announcement.NONE: Announcer(balances=False),
}
"""What each value of the setting `announcement` does."""


def build_annotations(announcement: Announcement, addresses: Sequence[str]) -> dict[str, str]:
    """Build the annotations of a Service that ask for addresses."""
    name = ANNOUNCERS[announcement].annotation
    return {name: ",".join(addresses)} if name else {}


def build_fields(
    announcement: Announcement, addresses: Sequence[str], load_balancer_class: str
) -> Manifest:
    """Build the fields of a Service's spec that say how its addresses are announced."""
    if not ANNOUNCERS[announcement].balances:
        external = announcement is Announcement.EXTERNAL_IPS
        return {"type": "ClusterIP"} | ({"externalIPs": list(addresses)} if external else {})
    fields: Manifest = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
    if load_balancer_class:
        fields["loadBalancerClass"] = load_balancer_class
    if announcement is Announcement.LOAD_BALANCER_IP:
        # The field has room for one address; Kubernetes deprecates it, some clouds know no other.
        fields["loadBalancerIP"] = addresses[0]
    return fields


def list_announced(service: Mapping[str, object]) -> tuple[str, ...]:
    """Return the addresses that a load balancer says it announces, and its host names."""
    return tuple(
        _normalize(text_at(each, "ip")) or text_at(each, "hostname")
        for each in maps_at(service, "status", "loadBalancer", "ingress")
    )


def find_refusal(service: Mapping[str, object]) -> str:
    """Return why a load balancer refuses a Service, as its conditions say; empty for no reason."""
    condition = find_condition(service, _CILIUM_CONDITION)
    if condition is None or condition.get("status") != "False":
        return ""
    return str(condition.get("message") or condition.get("reason") or "no reason given")


def evaluate_announced(
    announcement: Announcement,
    name: str,
    service: Mapping[str, object],
    addresses: Sequence[str],
    refusal: str = "",
) -> Condition:
    """State whether the addresses of a claim are announced.

    Args:
        announcement: How they are announced.
        name: Name of the Service.
        service: The Service as it was last seen; empty when it was not.
        addresses: Addresses of the claim.
        refusal: Why the load balancer refuses them, as its Events say; empty for no reason.
    """
    condition, wanted = ClaimCondition.ANNOUNCED, ", ".join(addresses)
    if not ANNOUNCERS[announcement].balances:
        message = f"nothing reports whether the network delivers {wanted} to the nodes"
        return Condition.unknown(condition, ClaimReason.NOT_OBSERVED, message)
    shown = list_announced(service)
    if set(addresses) <= set(shown):
        return Condition.true(condition, ClaimReason.ANNOUNCED)
    refusal = find_refusal(service) or refusal
    if refusal:
        message = f"the load balancer refuses {wanted} for Service {name}: {refusal}"
        return Condition.false(condition, ClaimReason.REFUSED, message)
    if shown:
        message = (
            f"the load balancer announces {', '.join(shown)} for Service {name} instead of "
            f"{wanted}; check settings.announcement of the operator and the pools of the load "
            "balancer"
        )
        return Condition.false(condition, ClaimReason.OTHER_ADDRESS, message)
    message = (
        f"no load balancer has announced {wanted} for Service {name} yet; the cluster needs one "
        "whose pool contains the address, or another value of settings.announcement"
    )
    return Condition.false(condition, ClaimReason.WAITING_FOR_LOAD_BALANCER, message)


def require_announced(plan: BindingPlan, announced: Condition) -> BindingPlan:
    """Call no address bound that a load balancer does not announce."""
    if plan.state is not BindingState.BOUND or announced.status != "False":
        return plan
    return replace(
        plan,
        state=BindingState.PENDING,
        reason=ClaimReason(announced.reason),
        message=announced.message,
    )


def _normalize(address: str) -> str:
    """Return an address in its shortest form, since load balancers may write any form."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
