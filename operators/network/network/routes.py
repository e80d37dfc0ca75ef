"""Resolves the next hops of the routes of a Network. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from libs.contracts.compute import InstanceView
from operators.network.api.v1alpha1 import Network
from operators.network.api.v1alpha1.fields import parse_address, parse_block
from operators.network.api.v1alpha1.network import Backend, NetworkReason, Route, RouteStatus

_BLACKHOLE: Final = (
    "guests receive no route without a next hop, because cloud-init has no format for it that "
    "all guests support; deny the destination with an Egress rule of a Firewall"
)


def resolve_routes(network: Network, instances: Mapping[str, InstanceView]) -> list[RouteStatus]:
    """Resolve the next hop of each route, in the order of the spec."""
    return [_resolve(network, route, instances) for route in network.spec.routes]


def find_obstacle(network: Network) -> str:
    """Return why no guest receives the routes, and the remedy; empty if guests receive them."""
    if network.spec.backend is not Backend.MULTUS:
        return (
            "on backend PodNetwork the network plugin configures guests, so no guest receives "
            "spec.routes; remove them, or use a Network of backend Multus"
        )
    if network.spec.pool_ref is None:
        return (
            "without spec.poolRef guests receive no network configuration, so no guest receives "
            "spec.routes; set spec.poolRef to an IPPool"
        )
    return ""


def is_resolved(routes: Iterable[RouteStatus]) -> bool:
    """Return whether every route can be used."""
    return all(route.reason is NetworkReason.RESOLVED for route in routes)


def _resolve(network: Network, route: Route, instances: Mapping[str, InstanceView]) -> RouteStatus:
    hop = route.next_hop
    if hop.blackhole is not None:
        return _missing(route, NetworkReason.ROUTES_NOT_APPLIED, _BLACKHOLE)
    if hop.instance_ref is None:
        return _found(route, hop.ip or "")
    name = hop.instance_ref.name
    instance = instances.get(name)
    if instance is None:
        return _missing(route, NetworkReason.INSTANCE_NOT_FOUND, f"Instance {name} does not exist")
    if instance.network != network.metadata.name:
        message = f"Instance {name} is in {instance.network or 'no network'}"
        return _missing(route, NetworkReason.OTHER_NETWORK, message)
    try:
        address = parse_address(instance.private_ip)
    except ValueError:
        message = f"Instance {name} has no private address yet"
        return _missing(route, NetworkReason.NO_ADDRESS, message)
    if address.version != parse_block(route.destination).version:
        message = f"Instance {name} has {address}, of the other family than the destination"
        return _missing(route, NetworkReason.FAMILY_MISMATCH, message)
    if not any(address in parse_block(block) for block in network.spec.cidrs):
        message = f"Instance {name} has {address}, which is not in spec.cidrs"
        return _missing(route, NetworkReason.OFF_LINK, message)
    return _found(route, str(address))


def _found(route: Route, next_hop: str) -> RouteStatus:
    return RouteStatus(
        destination=route.destination,
        next_hop=next_hop,
        reason=NetworkReason.RESOLVED,
    )


def _missing(route: Route, reason: NetworkReason, message: str) -> RouteStatus:
    return RouteStatus(destination=route.destination, reason=reason, message=message)
