"""The Service and the EndpointSlices of a claim; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.common.kinds import (
    ENDPOINT_SLICE,
    ENDPOINTS,
    POD,
    SERVICE,
    Key,
    Kind,
    Manifest,
    build_object,
)
from libs.common.labels import (
    INSTANCE,
    MANAGED_BY,
    SERVICE_NAME,
    SKIP_MIRROR,
    SLICE_MANAGED_BY,
)
from libs.common.naming import build_name, label_value, short_hash
from libs.common.ownership import build_owner_reference
from libs.common.reading import map_at, maps_at, text_at, text_map_at, texts_at
from operators.ipam.api.v1alpha1.claims import IP_CLAIM, ClaimPort, IPClaim, TargetKind
from operators.ipam.claim.announcement import ANNOUNCERS, build_annotations, build_fields
from operators.ipam.claim.binding import Binding, RoutedEndpoint, sort_places
from operators.ipam.naming import (
    EPOCH,
    OPERATOR_ID,
    SLICE_MANAGER,
    TARGET,
    TARGET_UID,
    VMI_CREATED,
    VMI_UID,
    service_name,
    slice_name,
)
from operators.ipam.settings import Announcement

_NOBODY: Final = {False: "127.0.0.1/32", True: "::1/128"}
"""A range of each family without any client; True means IPv6."""


@dataclass(frozen=True, slots=True)
class PortMap:
    """The mapping of a port of an address to a port of its target.

    Attributes:
        name: Name, unique in the claim.
        protocol: TCP, UDP or SCTP.
    """

    name: str
    protocol: str
    port: int
    target_port: int

    @classmethod
    def of(cls, port: ClaimPort) -> PortMap:
        """Build the map of a port of a claim."""
        return cls(port.name, str(port.protocol), port.port, port.target_port or port.port)


@dataclass(frozen=True, slots=True)
class Publication:
    """The published data of a claim.

    Attributes:
        ports_at: Ports of endpoints that differ from these, for example if pods of a Service give a
            named port different numbers.
        announcement: How the Service makes them known.
        load_balancer_class: Class of the load balancer; empty for the default.
        proxy_labels: Labels by which another program than kube-proxy serves the Service; it reads
            Endpoints.
    """

    addresses: tuple[str, ...]
    binding: Binding
    ports: tuple[PortMap, ...]
    announcement: Announcement = Announcement.METALLB
    load_balancer_class: str = ""
    ports_at: Mapping[RoutedEndpoint, tuple[PortMap, ...]] = field(default_factory=dict)
    proxy_labels: Mapping[str, str] = field(default_factory=dict)
    proxy_annotations: Mapping[str, str] = field(default_factory=dict)


def build_children(claim: IPClaim, shown: Publication) -> list[tuple[Kind, Manifest]]:
    """Build the Service and its slices, each with its kind, in the order in which to write them.

    The slices come first: a Service that is announced before it has endpoints drops traffic.
    """
    slices = [
        (ENDPOINT_SLICE, built)
        for address in shown.addresses
        for built in build_slices(claim, shown, v6=":" in address)
    ]
    if shown.proxy_labels:
        slices.append((ENDPOINTS, build_endpoints(claim, shown)))
    return [*slices, (SERVICE, build_service(claim, shown))]


def build_service(claim: IPClaim, shown: Publication) -> Manifest:
    """Build the Service of a claim.

    It has no selector, so that the EndpointSlice controller of Kubernetes adds no endpoints to it.
    """
    families = ["IPv6" if ":" in address else "IPv4" for address in shown.addresses]
    # Only the traffic of a machine ends on one node. If the announcing node is always the node with
    # the endpoint, the policy Local works and the guest sees the addresses of its clients.
    is_machine = claim.spec.target is not None and claim.spec.target.kind is TargetKind.INSTANCE
    local = is_machine and ANNOUNCERS[shown.announcement].follows_endpoint
    spec: Manifest = {
        "ipFamilies": families,
        "ipFamilyPolicy": "SingleStack" if len(families) == 1 else "RequireDualStack",
        "ports": [
            {
                "name": each.name,
                "protocol": each.protocol,
                "port": each.port,
                "targetPort": each.target_port,
            }
            for each in shown.ports
        ],
    }
    spec |= build_fields(shown.announcement, shown.addresses, shown.load_balancer_class)
    if claim.spec.allowed_cidrs:
        spec["loadBalancerSourceRanges"] = build_source_ranges(
            claim.spec.allowed_cidrs, shown.addresses
        )
    if spec["type"] == "LoadBalancer" or "externalIPs" in spec:
        # The API server allows the policy only for Services with external traffic.
        spec["externalTrafficPolicy"] = "Local" if local else "Cluster"
    metadata = _build_metadata(claim)
    metadata["labels"] |= shown.proxy_labels
    annotations = build_annotations(shown.announcement, shown.addresses)
    annotations |= shown.proxy_annotations
    if annotations:
        metadata["annotations"] = annotations
    name = service_name(claim.metadata.name)
    return build_object(SERVICE, name, claim.metadata.namespace, metadata=metadata, spec=spec)


def build_source_ranges(cidrs: Sequence[str], addresses: Sequence[str]) -> list[str]:
    """Build the client addresses that a Service accepts.

    kube-proxy admits everyone for a family without any range. So such a family gets a range that no
    client has.
    """
    served = {":" in each for each in cidrs}
    return [*cidrs, *(_NOBODY[v6] for v6 in sorted({":" in each for each in addresses} - served))]


def build_endpoints(claim: IPClaim, shown: Publication) -> Manifest:
    """Build the Endpoints of a claim, for a program that does not read EndpointSlices."""
    metadata = _build_metadata(claim)
    metadata["labels"][SKIP_MIRROR] = "true"
    addresses = [{"ip": each.address} for each in shown.binding.places]
    ports = [
        {"name": each.name, "protocol": each.protocol, "port": each.target_port}
        for each in shown.ports
    ]
    name = service_name(claim.metadata.name)
    subsets = [{"addresses": addresses, "ports": ports}] if addresses else []
    return build_object(
        ENDPOINTS, name, claim.metadata.namespace, metadata=metadata, subsets=subsets
    )


def build_slices(claim: IPClaim, shown: Publication, *, v6: bool) -> list[Manifest]:
    """Build the EndpointSlices of one family: one for each set of ports of its places.

    The first slice has a fixed name and always exists. It is written last, so that a place that
    moves to another slice is in both slices for a moment, and never in none.
    """
    groups: dict[tuple[PortMap, ...], list[RoutedEndpoint]] = {}
    for place in shown.binding.places:
        if (":" in place.address) == v6:
            groups.setdefault(shown.ports_at.get(place, shown.ports), []).append(place)
    (ports, places), *others = sorted(
        groups.items(), key=lambda item: [(each.name, each.target_port) for each in item[0]]
    ) or [(shown.ports, [])]
    name = slice_name(claim.metadata.name, v6=v6)
    further = [
        _build_slice(claim, shown, build_name(name, short_hash(str(each))), each, there, v6=v6)
        for each, there in others
    ]
    return [*further, _build_slice(claim, shown, name, ports, places, v6=v6)]


def _build_slice(
    claim: IPClaim,
    shown: Publication,
    name: str,
    ports: Sequence[PortMap],
    places: Sequence[RoutedEndpoint],
    *,
    v6: bool,
) -> Manifest:
    binding = shown.binding
    metadata = _build_metadata(claim)
    metadata["labels"] |= {
        SERVICE_NAME: service_name(claim.metadata.name),
        SLICE_MANAGED_BY: SLICE_MANAGER,
    }
    marks = {
        EPOCH: str(binding.epoch),
        TARGET: binding.target,
        TARGET_UID: binding.target_uid,
        VMI_UID: binding.vmi_uid,
        VMI_CREATED: binding.vmi_created,
    }
    metadata["annotations"] = {name: value for name, value in marks.items() if value}
    return build_object(
        ENDPOINT_SLICE,
        name,
        claim.metadata.namespace,
        metadata=metadata,
        addressType="IPv6" if v6 else "IPv4",
        endpoints=[_build_endpoint(each) for each in places],
        ports=[
            {"name": each.name, "protocol": each.protocol, "port": each.target_port}
            for each in ports
        ],
    )


def parse_binding(slices: Sequence[Manifest]) -> Binding:
    """Read the binding of an address from its slices."""
    if not slices:
        return Binding()
    marks = text_map_at(slices[0], "metadata", "annotations")
    epochs = [text_at(each, "metadata", "annotations", EPOCH) for each in slices]
    return Binding(
        target=marks.get(TARGET, ""),
        target_uid=marks.get(TARGET_UID, ""),
        vmi_uid=marks.get(VMI_UID, ""),
        vmi_created=marks.get(VMI_CREATED, ""),
        places=_parse_places(slices),
        epoch=max(int(epoch) if epoch.isdigit() else 0 for epoch in epochs),
    )


def _parse_places(slices: Sequence[Manifest]) -> tuple[RoutedEndpoint, ...]:
    return sort_places(
        parse_place(endpoint, address)
        for each in slices
        for endpoint in maps_at(each, "endpoints")
        for address in texts_at(endpoint, "addresses")
    )


def parse_place(endpoint: Mapping[str, object], address: str) -> RoutedEndpoint:
    """Build a place from an endpoint of a slice."""
    reference = map_at(endpoint, "targetRef")
    key = Key(text_at(reference, "namespace"), text_at(reference, "name"))
    is_pod = text_at(reference, "kind") == POD.kind and bool(key.name)
    node, uid = text_at(endpoint, "nodeName"), text_at(reference, "uid")
    return RoutedEndpoint(address, node, key, uid) if is_pod else RoutedEndpoint(address, node)


def _build_endpoint(place: RoutedEndpoint) -> Manifest:
    # The endpoint is ready even if its pod is not: packets do no harm to a machine that boots, and
    # during a migration the readiness of the pods does not show where the guest runs.
    endpoint: Manifest = {"addresses": [place.address], "conditions": {"ready": True}}
    if place.node:
        endpoint["nodeName"] = place.node
    if place.pod is not None:
        endpoint["targetRef"] = {
            "kind": POD.kind,
            "namespace": place.pod.namespace,
            "name": place.pod.name,
            "uid": place.pod_uid,
        }
    return endpoint


def _build_metadata(claim: IPClaim) -> Manifest:
    owner: Mapping[str, object] = {"name": claim.metadata.name, "uid": claim.metadata.uid}
    return {
        "labels": {MANAGED_BY: OPERATOR_ID, INSTANCE: label_value(claim.metadata.name)},
        "ownerReferences": [build_owner_reference(IP_CLAIM, {"metadata": dict(owner)})],
    }
