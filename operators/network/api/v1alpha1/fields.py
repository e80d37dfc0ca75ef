"""Fields that Network and Firewall share: addresses as text, users, the network of an object."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from libs.common.conditions import READY
from libs.common.crd import READY_COLUMN, ListAtomic, PrinterColumn, Rule

GROUP: Final = "network.slipway.dev"
"""API group of the operator."""
USERS_SHOWN: Final = 20
"""Maximum number of users that a status lists; a network can have thousands."""

type Block = IPv4Network | IPv6Network
"""Addresses that share a prefix."""

_BAD_CIDR: Final = "must be addresses in CIDR notation without bits behind the prefix: 10.0.0.0/8"
_BAD_IP: Final = "must be an IP address: 10.0.0.1, fd00::1"
_MAPPED: Final = IPv6Network("::ffff:0:0/96")


def parse_block(text: str) -> Block:
    """Parse addresses in CIDR notation, as strictly as the API server does.

    Raises:
        ValueError: Not CIDR notation, host bits set, or an IPv4-mapped IPv6 address.
    """
    prefix = text.rpartition("/")[2]
    try:
        block = ip_network(text)
    except ValueError:
        raise ValueError(_BAD_CIDR) from None
    # Python accepts netmasks and single addresses as well, and Python and Go disagree about
    # IPv4-mapped IPv6 addresses.
    plain = prefix.isascii() and prefix.isdigit() and prefix == str(block.prefixlen)
    if not plain or "%" in text or (block.version == 6 and block.subnet_of(_MAPPED)):
        raise ValueError(_BAD_CIDR)
    return block


def parse_address(text: str) -> IPv4Address | IPv6Address:
    """Parse one address.

    Raises:
        ValueError: Not an address, an address with a zone, or an IPv4-mapped IPv6 address.
    """
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError(_BAD_IP) from None
    if "%" in text or (address.version == 6 and address in _MAPPED):
        raise ValueError(_BAD_IP)
    return address


def _check_block(text: str) -> str:
    parse_block(text)
    return text


def _check_address(text: str) -> str:
    parse_address(text)
    return text


Cidr = Annotated[
    str,
    Field(max_length=43),
    AfterValidator(_check_block),
    Rule("isCIDR(self) && cidr(self) == cidr(self).masked()", _BAD_CIDR),
]
"""Addresses in CIDR notation, of either family."""

Ip = Annotated[
    str, Field(max_length=39), AfterValidator(_check_address), Rule("isIP(self)", _BAD_IP)
]
"""One IP address, of either family."""

Users = Annotated[
    list[Annotated[str, Field(max_length=280)]], ListAtomic(), Field(max_length=USERS_SHOWN)
]
"""Kind and name of each of the first users of an object."""

READY_COLUMNS: Final = (
    READY_COLUMN,
    PrinterColumn("Reason", "string", f'.status.conditions[?(@.type=="{READY}")].reason'),
)
"""Columns that show whether an object is Ready."""
