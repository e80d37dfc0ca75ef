"""Announcement: how a Service requests its address from a load balancer, and the response. Pure.

This operator does not make an address reachable; a load balancer does. It writes the addresses that
it announces to `status.loadBalancer.ingress` of the Service. Only that field shows whether it
announces the address of the claim, another address, or none.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from libs.common.conditions import Condition, find_condition
from libs.common.kinds import Manifest
from libs.common.reading import maps_at, text_at, text_map_at
from operators.ipam.api.v1alpha1.claims import BindingState, ClaimCondition, ClaimReason
from operators.ipam.claim.binding import BindingPlan
from operators.ipam.settings import Announcement

_CILIUM_CONDITION: Final = "cilium.io/IPAMRequestSatisfied"
"""Condition on a Service by which Cilium refuses addresses (docs.cilium.io, LB IPAM)."""


@dataclass(frozen=True, slots=True)
class Announcer:
    """The interface between a Service and one load balancer implementation.

    Attributes:
        annotation: Annotation that requests addresses, separated by commas; empty for none.
        balances: Whether the Service has type LoadBalancer, so that its status reports addresses.
        follows_endpoint: Whether the announcing node always has an endpoint, so that
            `externalTrafficPolicy: Local` does not drop packets.
        refusal_event: Reason of the Events by which it refuses an address; empty for none.
    """

    annotation: str = ""
    balances: bool = True
    follows_endpoint: bool = False
    refusal_event: str = ""


ANNOUNCERS: Final[Mapping[Announcement, Announcer]] = {
    # metallb.io/usage: "Requesting specific IPs". With the policy Local, its layer 2 mode elects
    # one of the nodes with an endpoint, and its BGP mode announces only from these nodes.
    Announcement.METALLB: Announcer(
        "metallb.io/loadBalancerIPs", follows_endpoint=True, refusal_event="AllocationFailed"
    ),
    # docs.cilium.io/en/stable/network/lb-ipam: "Requesting IPs". Its layer 2 announcements elect a
    # node whether or not it has an endpoint.
    Announcement.CILIUM: Announcer("lbipam.cilium.io/ips"),
    # kube-vip.io/docs/usage/kubernetes-services. Without an election for each Service, one node has
    # all addresses.
    Announcement.KUBE_VIP: Announcer("kube-vip.io/loadbalancerIPs"),
    Announcement.LOAD_BALANCER_IP: Announcer(),
    Announcement.EXTERNAL_IPS: Announcer(balances=False),
    Announcement.NONE: Announcer(balances=False),
}
"""Load balancer for each value of the setting `announcement`."""


def build_annotations(announcement: Announcement, addresses: Sequence[str]) -> dict[str, str]:
    """Build the annotations by which a Service requests addresses."""
    name = ANNOUNCERS[announcement].annotation
    return {name: ",".join(addresses)} if name else {}


def build_fields(
    announcement: Announcement, addresses: Sequence[str], load_balancer_class: str
) -> Manifest:
    """Build the fields in the spec of a Service that request the announcement of its addresses."""
    if not ANNOUNCERS[announcement].balances:
        external = announcement is Announcement.EXTERNAL_IPS
        return {"type": "ClusterIP"} | ({"externalIPs": list(addresses)} if external else {})
    fields: Manifest = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
    if load_balancer_class:
        fields["loadBalancerClass"] = load_balancer_class
    if announcement is Announcement.LOAD_BALANCER_IP:
        # The field can contain only one address. Kubernetes has deprecated it, but some clouds
        # support no other field.
        fields["loadBalancerIP"] = addresses[0]
    return fields


def list_announced(service: Mapping[str, object]) -> tuple[str, ...]:
    """Return the addresses and host names that a load balancer reports for a Service."""
    return tuple(
        normalize(text_at(each, "ip")) or text_at(each, "hostname")
        for each in maps_at(service, "status", "loadBalancer", "ingress")
    )


def list_requested(service: Mapping[str, object]) -> tuple[str, ...]:
    """Return the addresses that the Service of a claim requests from a load balancer."""
    notes = text_map_at(service, "metadata", "annotations")
    texts = [notes.get(each.annotation, "") for each in ANNOUNCERS.values()]
    texts.append(text_at(service, "spec", "loadBalancerIP"))
    return tuple(address for text in texts for address in text.split(",") if address)


def find_refusal(service: Mapping[str, object]) -> str:
    """Return why a load balancer refuses a Service, from its conditions; empty if it does not."""
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
    """Build the condition Announced.

    Args:
        announcement: Setting `announcement`.
        name: Name of the Service.
        service: The Service from the cache; empty if it does not exist.
        addresses: Addresses of the claim.
        refusal: Why the load balancer refuses them, from its Events; empty if it does not.
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
    """Change a binding from Bound to Pending if the load balancer does not announce the address."""
    if plan.state is not BindingState.BOUND or announced.status != "False":
        return plan
    return replace(
        plan,
        state=BindingState.PENDING,
        reason=ClaimReason(announced.reason),
        message=announced.message,
    )


def normalize(address: str) -> str:
    """Return an address in canonical form; load balancers may write another form."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
