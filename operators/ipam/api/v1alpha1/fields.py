"""Fields that the kinds of ipam share: families, addresses, realms, and their rules."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from libs.common.crd import DnsSubdomain, KubernetesModel, Rule, Uid

GROUP: Final = "ipam.slipway.dev"
"""API group of the operator."""
ADDRESS_LENGTH: Final = 39
"""Length of the longest address as text: eight groups of IPv6."""

_NOT_CANONICAL: Final = "address must be an IPv4 or IPv6 address in its shortest form (2001:db8::1)"


class Family(StrEnum):
    """Family is the IP version of an address."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"


def _check_canonical(value: str) -> str:
    try:
        parsed = ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(_NOT_CANONICAL) from None
    if str(parsed) != value:
        raise ValueError(_NOT_CANONICAL)
    return value


Address = Annotated[
    str,
    Field(min_length=2, max_length=ADDRESS_LENGTH),
    AfterValidator(_check_canonical),
    Rule("isIP(self) && ip.isCanonical(self)", _NOT_CANONICAL),
]
"""An address in canonical form: the name of its ledger entry contains it."""

_NOT_A_NETWORK: Final = "must be a network in CIDR notation with its network address (192.0.2.0/24)"


def _check_cidr(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise ValueError(_NOT_A_NETWORK) from None
    return value


Cidr = Annotated[
    str,
    Field(min_length=2, max_length=43),
    AfterValidator(_check_cidr),
    Rule("isCIDR(self) && cidr(self) == cidr(self).masked()", _NOT_A_NETWORK),
]
"""A network in CIDR notation."""

Realm = Annotated[str, Field(min_length=1, max_length=20, pattern=r"^[a-z0-9]+$")]
"""A space in which each address is unique."""


class PoolReference(KubernetesModel):
    """PoolReference names an IPPool."""

    name: DnsSubdomain
    """name is the name of the IPPool."""


class NamedReference(KubernetesModel):
    """NamedReference names one incarnation of a cluster-scoped object."""

    name: DnsSubdomain
    """name is the name of the object."""
    uid: Uid
    """uid is the UID of the object."""
