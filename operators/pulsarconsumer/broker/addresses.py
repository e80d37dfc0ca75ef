"""Which hosts are talked to, and which of them get to see credentials.

Anyone who can write a PulsarConsumer can name a host, and the operator sends requests to it from
its place in the network. Two rules restrict this. Addresses that only the operator's own pod or
node can reach (loopback, link-local: metadata services of clouds) are refused, whatever name
resolves to them, even after a redirect. And credentials follow a redirect only to hosts in the
domain of the original host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

_CLUSTER_SUFFIXES: Final = (".svc.cluster.local", ".svc")
_DOMAIN_LABELS: Final = 2
"""Fewest labels of a domain whose hosts count as neighbors; fewer would be a whole registry."""


class AddressRefused(Exception):
    """The operator does not talk to such addresses."""

    def __init__(self, host: str) -> None:
        """Name the host, which the user wrote or the broker named."""
        super().__init__(f"{host} resolves to an address of the operator's own pod or node")


def is_reachable(address: str, *, allow_loopback: bool = False) -> bool:
    """Return whether an IP address may be talked to."""
    parsed: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return allow_loopback
    return not (
        parsed.is_link_local
        or parsed.is_unspecified
        or parsed.is_multicast
        or (parsed.version == 4 and parsed.is_reserved)
    )


def check_literal(host: str, *, allow_loopback: bool = False) -> None:
    """Check a host that is an IP address; names are checked when they are resolved.

    Raises:
        AddressRefused: It may not be talked to.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    if not is_reachable(host, allow_loopback=allow_loopback):
        raise AddressRefused(host)


def are_neighbors(first: str, second: str) -> bool:
    """Return whether two hosts are the same, or in one domain of two labels or more.

    Services and pods of one namespace of Kubernetes belong together, however they are written.
    """
    return first.lower() == second.lower() or _zone(first) == _zone(second) != ""


def _zone(host: str) -> str:
    name = host.lower().rstrip(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        pass
    else:
        return ""
    for suffix in _CLUSTER_SUFFIXES:
        if name.endswith(suffix):
            return f"namespace {name.removesuffix(suffix).rpartition('.')[2]}"
    labels = name.split(".")
    return ".".join(labels[1:]) if len(labels) > _DOMAIN_LABELS else ""


class ConfinedResolver(AbstractResolver):
    """A resolver that returns only addresses to which connections are allowed.

    The addresses that are checked are those that are connected to: a name that changes its mind
    between two look-ups gains nothing.

    Args:
        allow_loopback: Whether this machine itself may be talked to.
    """

    def __init__(self, *, allow_loopback: bool = False) -> None:
        """Keep the rule."""
        self._allow_loopback = allow_loopback

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a name.

        Raises:
            AddressRefused: None of its addresses may be talked to.
            OSError: It has none.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        results = [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST,
            )
            for kind, _, protocol, _, address in found
            if is_reachable(str(address[0]), allow_loopback=self._allow_loopback)
        ]
        if found and not results:
            raise AddressRefused(host)
        return results

    async def close(self) -> None:
        """Close nothing."""
