"""Network data: the configuration of a guest's interface on a Network with its own addresses. Pure.

The format is version 2 of the network configuration of cloud-init, which is the netplan format.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from libs.common.kinds import Manifest
from libs.contracts.network import NetworkView
from operators.compute.api.instance import Instance
from operators.compute.instance.observed import Observed
from operators.compute.instance.record import read_record
from operators.compute.naming import mac_address


def find_network_data(instance: Instance, observed: Observed) -> Manifest | None:
    """Return the network data of the guest; None if it has no private address yet."""
    network, claim = observed.network, observed.private_claim
    if network is None or claim is None or not network.is_attached:
        return None
    given = (claim.address, claim.secondary_address)
    addresses = [_add_prefix(network, address) for address in given if address]
    if not addresses or not all(addresses):
        return None
    return {"version": 2, "ethernets": {"default": _build_interface(instance, network, addresses)}}


def _build_interface(instance: Instance, network: NetworkView, addresses: list[str]) -> Manifest:
    interface: Manifest = {
        "match": {"macaddress": mac_address(read_record(instance).seed)},
        "addresses": addresses,
    }
    if network.mtu:
        interface["mtu"] = network.mtu
    if network.nameservers:
        interface["nameservers"] = {"addresses": list(network.nameservers)}
    routes = [
        {"to": route.destination, "via": route.next_hop}
        for route in network.routes
        if route.resolved and route.next_hop
    ]
    if network.gateway:
        everything = "::/0" if ip_address(network.gateway).version == 6 else "0.0.0.0/0"
        routes.insert(0, {"to": everything, "via": network.gateway})
    if routes:
        interface["routes"] = routes
    return interface


def _add_prefix(network: NetworkView, address: str) -> str:
    """Append the prefix length; empty if no block of the Network contains the address."""
    found = ip_address(address)
    for cidr in network.cidrs:
        block = ip_network(cidr, strict=False)
        if found in block:
            return f"{address}/{block.prefixlen}"
    return ""
