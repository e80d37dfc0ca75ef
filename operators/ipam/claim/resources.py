"""The Service and the EndpointSlices of a claim; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from libs.common.contracts.reading import map_at, maps_at, text_at, text_map_at, texts_at
from libs.common.kinds import ENDPOINT_SLICE, POD, SERVICE, Key, Kind, Manifest, build_object
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import label_value
from libs.common.ownership import build_owner_reference
from operators.ipam.api.v1alpha1.claims import IP_CLAIM, ClaimPort, IPClaim, TargetKind
from operators.ipam.claim.binding import Binding, Place, sort_places
from operators.ipam.naming import (
    EPOCH,
    OPERATOR,
    SLICE_MANAGER,
    TARGET,
    TARGET_UID,
    VMI_CREATED,
    VMI_UID,
    service_name,
    slice_name,
)
from operators.ipam.settings import Announcement

SERVICE_OF: Final = "kubernetes.io/service-name"
"""Label on an EndpointSlice: the Service that it belongs to."""
_SLICE_MANAGER: Final = "endpointslice.kubernetes.io/managed-by"
_METALLB: Final = "metallb.io/loadBalancerIPs"


@dataclass(frozen=True, slots=True)
class PortMap:
    """Lead one port of an address to a port of its target.

    Attributes:
        name: Name, unique in the claim.
        protocol: TCP, UDP or SCTP.
        port: Port of the address.
        target_port: Port of the target.
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
    """Say what of a claim is published.

    Attributes:
        addresses: The addresses of the claim.
        binding: Where they lead.
        ports: What they answer on.
        announcement: How the Service makes them known.
        load_balancer_class: Class of the load balancer; empty for the default.
    """

    addresses: tuple[str, ...]
    binding: Binding
    ports: tuple[PortMap, ...]
    announcement: Announcement = Announcement.LOAD_BALANCER
    load_balancer_class: str = ""


def build_children(claim: IPClaim, shown: Publication) -> list[tuple[Kind, Manifest]]:
    """Build the Service and its slices, each with its kind, in the order in which to write them.

    The slices come first: a Service that is announced before it leads anywhere drops traffic.
    """
    slices: list[tuple[Kind, Manifest]] = [
        (ENDPOINT_SLICE, build_slice(claim, shown, v6=":" in address))
        for address in shown.addresses
    ]
    return [*slices, (SERVICE, build_service(claim, shown))]


def build_service(claim: IPClaim, shown: Publication) -> Manifest:
    """Build the Service of a claim: without a selector, so that nobody else fills it."""
    families = ["IPv6" if ":" in address else "IPv4" for address in shown.addresses]
    # Only a machine has a node of its own; there the announcing node is that of the endpoint, and
    # so the address really moves with it.
    on_node = claim.spec.target is not None and claim.spec.target.kind is TargetKind.INSTANCE
    spec: Manifest = {
        "ipFamilies": families,
        "ipFamilyPolicy": "SingleStack" if len(families) == 1 else "RequireDualStack",
        "externalTrafficPolicy": "Local" if on_node else "Cluster",
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
    metadata = _build_metadata(claim)
    if shown.announcement is Announcement.EXTERNAL_IPS:
        spec |= {"type": "ClusterIP", "externalIPs": list(shown.addresses)}
    else:
        spec |= {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
        if shown.load_balancer_class:
            spec["loadBalancerClass"] = shown.load_balancer_class
        metadata["annotations"] = {_METALLB: ",".join(shown.addresses)}
    name = service_name(claim.metadata.name)
    return build_object(SERVICE, name, claim.metadata.namespace, metadata=metadata, spec=spec)


def build_slice(claim: IPClaim, shown: Publication, *, v6: bool) -> Manifest:
    """Build the EndpointSlice of one family; it is written as a whole, so never in between."""
    binding = shown.binding
    metadata = _build_metadata(claim)
    metadata["labels"] |= {
        SERVICE_OF: service_name(claim.metadata.name),
        _SLICE_MANAGER: SLICE_MANAGER,
    }
    marks = {
        EPOCH: str(binding.epoch),
        TARGET: binding.target,
        TARGET_UID: binding.target_uid,
        VMI_UID: binding.vmi_uid,
        VMI_CREATED: binding.vmi_created,
    }
    metadata["annotations"] = {name: value for name, value in marks.items() if value}
    endpoints = [_build_endpoint(each) for each in binding.places if (":" in each.address) == v6]
    return build_object(
        ENDPOINT_SLICE,
        slice_name(claim.metadata.name, v6=v6),
        claim.metadata.namespace,
        metadata=metadata,
        addressType="IPv6" if v6 else "IPv4",
        endpoints=endpoints,
        ports=[
            {"name": each.name, "protocol": each.protocol, "port": each.target_port}
            for each in shown.ports
        ],
    )


def parse_binding(slices: Sequence[Manifest]) -> Binding:
    """Read where an address leads from the slices that say it."""
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


def _parse_places(slices: Sequence[Manifest]) -> tuple[Place, ...]:
    return sort_places(
        parse_place(endpoint, address)
        for each in slices
        for endpoint in maps_at(each, "endpoints")
        for address in texts_at(endpoint, "addresses")
    )


def parse_place(endpoint: Mapping[str, object], address: str) -> Place:
    """Read one place out of an endpoint of a slice."""
    reference = map_at(endpoint, "targetRef")
    key = Key(text_at(reference, "namespace"), text_at(reference, "name"))
    is_pod = text_at(reference, "kind") == POD.kind and bool(key.name)
    node, uid = text_at(endpoint, "nodeName"), text_at(reference, "uid")
    return Place(address, node, key, uid) if is_pod else Place(address, node)


def _build_endpoint(place: Place) -> Manifest:
    # Ready whatever the pod says: a machine that boots is none the worse for a packet, and in a
    # migration the readiness of its pods tells nothing.
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
        "labels": {MANAGED_BY: OPERATOR, INSTANCE: label_value(claim.metadata.name)},
        "ownerReferences": [build_owner_reference(IP_CLAIM, {"metadata": dict(owner)})],
    }
