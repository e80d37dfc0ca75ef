"""The address request of a Service, and the resulting status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from libs.common.kinds import SERVICE, Manifest, build_object, key_of, uid_of
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import build_name, label_value
from libs.common.ownership import build_owner_reference
from libs.common.plan import Patch, annotate
from libs.common.reading import map_at, text_at, text_map_at, texts_at
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.claim.announcement import ANNOUNCERS, build_annotations
from operators.ipam.naming import LOAD_BALANCER_CLASS, OPERATOR_ID, POOL, SECONDARY_POOL
from operators.ipam.settings import Announcement

_SUFFIX: Final = "lb"


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """The address that a Service requests.

    Attributes:
        pool: Name of the IPPool; empty if neither the Service nor the settings name one.
        address: Requested address; empty for any.
        secondary_pool: Name of the IPPool of a second address; empty for none.
    """

    pool: str
    address: str = ""
    secondary_pool: str = ""


def claim_name(service: str) -> str:
    """Return the name of the IPClaim of a Service: `<service>-lb`."""
    return build_name(service, _SUFFIX)


def is_ours(service: Mapping[str, object], service_class: str = LOAD_BALANCER_CLASS) -> bool:
    """Return whether a Service requests a load balancer of our class.

    A Service without a class belongs to the default load balancer of the cluster.
    """
    return (
        text_at(service, "spec", "type") == "LoadBalancer"
        and text_at(service, "spec", "loadBalancerClass") == service_class
    )


def read_request(service: Mapping[str, object], default_pool: str) -> AddressRequest:
    """Read the address request of a Service."""
    pool = text_at(service, "metadata", "annotations", POOL) or default_pool
    second = text_at(service, "metadata", "annotations", SECONDARY_POOL)
    return AddressRequest(pool, text_at(service, "spec", "loadBalancerIP"), second)


def build_claim(service: Manifest, request: AddressRequest) -> Manifest:
    """Build the claim of a Service, which the garbage collector deletes with it."""
    key = key_of(service)
    metadata = {
        "labels": {MANAGED_BY: OPERATOR_ID, INSTANCE: label_value(key.name)},
        "ownerReferences": [build_owner_reference(SERVICE, service)],
    }
    spec: Manifest = {"poolRef": {"name": request.pool}}
    if request.address:
        spec["address"] = request.address
    if request.secondary_pool:
        spec["secondary"] = {"poolRef": {"name": request.secondary_pool}}
    return build_object(IP_CLAIM, claim_name(key.name), key.namespace, metadata=metadata, spec=spec)


def explain_difference(
    claim: Mapping[str, object], request: AddressRequest, addresses: Sequence[str]
) -> str:
    """Return how a claim differs from the present request of its Service; empty if it does not."""
    held = AddressRequest(
        text_at(claim, "spec", "poolRef", "name"),
        text_at(claim, "spec", "address"),
        text_at(claim, "spec", "secondary", "poolRef", "name"),
    )
    satisfied = not request.address or request.address in addresses
    if (
        not request.pool
        or held == request
        or (addresses and held == replace(request, address=held.address) and satisfied)
    ):
        return ""
    kept = ", ".join(addresses) or "its address"
    return (
        f"The Service keeps {kept} of IPPool {held.pool}: an address never changes. To request "
        "another pool, address or family, create another Service"
    )


def plan_second_pool(claim: Manifest, request: AddressRequest) -> list[Patch]:
    """Plan the change of the second pool of a claim, which is possible without a second address."""
    second = request.secondary_pool
    held = text_at(claim, "spec", "secondary", "poolRef", "name")
    if held == second or text_at(claim, "status", "secondaryAddress"):
        return []
    operation: Manifest = {"op": "remove", "path": "/spec/secondary"}
    if second:
        operation |= {"op": "add", "value": {"poolRef": {"name": second}}}
    return [Patch(IP_CLAIM, key_of(claim), uid_of(claim), [operation])]


def explain_mismatch(service: Mapping[str, object], address: str) -> str:
    """Return why an address does not fit a Service; empty if it does."""
    family = "IPv6" if ":" in address else "IPv4"
    families = texts_at(service, "spec", "ipFamilies")
    if not families or family in families:
        return ""
    return f"{address} is {family}, and the Service has only {', '.join(families)}; change its pool"


def plan_annotations(
    service: Manifest, announcement: Announcement, addresses: Sequence[str]
) -> list[Patch]:
    """Plan the annotation with the addresses of a Service, for load balancers that need it.

    kube-vip announces the addresses in its annotation and does not read the status. An address that
    a user has set there is removed, because it is not allocated to this Service.
    """
    if announcement is not Announcement.KUBE_VIP:
        return []
    held = text_map_at(service, "metadata", "annotations")
    wanted = build_annotations(announcement, addresses) if addresses else {}
    name = ANNOUNCERS[announcement].annotation
    if held.get(name) == wanted.get(name):
        return []
    change = annotate(held, name, wanted.get(name, ""))
    version = text_at(service, "metadata", "resourceVersion")
    return [Patch(SERVICE, key_of(service), uid_of(service), [change], resource_version=version)]


def build_status(service: Manifest, addresses: Sequence[str]) -> Manifest:
    """Build the status of a Service with some or no addresses, keeping its other conditions."""
    kept = {
        name: value for name, value in map_at(service, "status").items() if name != "loadBalancer"
    }
    # VIP: packets arrive with the address as their destination, which kube-proxy accepts.
    ingress = [{"ip": address, "ipMode": "VIP"} for address in addresses]
    return {**kept, "loadBalancer": {"ingress": ingress}} if ingress else kept
