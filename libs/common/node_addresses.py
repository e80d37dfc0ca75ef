"""Addresses that lead to a node or to the own pod instead of another host. Pure.

Tenants choose hosts that operators and importers connect to: images, brokers, pods whose status
somebody may write. A service of the node, such as the metadata service of a cloud, must not be
among them, in whatever way its address is written.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Final

METADATA: Final = frozenset(
    ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
"""Addresses of metadata services of clouds that are not link-local."""
_EMBEDDING: Final = tuple(
    IPv6Network(block)
    for block in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16")
)
"""IPv6 addresses that contain an IPv4 address, to which NAT64 and 6to4 route."""


def find_embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address contains, or the address itself."""
    if isinstance(address, IPv6Address) and any(address in block for block in _EMBEDDING):
        return address.sixtofour or IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_of_node(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address, or the IPv4 address in it, is one of the node or of the pod."""
    return any(
        each.is_loopback
        or each.is_link_local
        or each.is_unspecified
        or each.is_multicast
        or str(each).partition("%")[0] in METADATA
        for each in (address, find_embedded(address))
    )
