"""Rules for the hosts to which the operator connects and sends credentials.

Anyone who can create a PulsarConsumer can name a host, and the operator sends requests to it from
its own pod (SSRF). Two rules restrict this. Addresses that only the operator's own pod or
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

from libs.common.node_addresses import find_embedded, is_of_node

_CLUSTER_SUFFIXES: Final = (".svc.cluster.local", ".svc")
_DOMAIN_LABELS: Final = 2
"""Minimum number of labels of a domain whose hosts count as neighbors; a domain with fewer labels
is a whole registry, such as com."""


class AddressRefused(Exception):
    """The operator refuses to connect to this address."""

    def __init__(self, host: str) -> None:
        """Build the message with the host, which comes from the user or from the broker."""
        super().__init__(f"{host} resolves to an address of the operator's own pod or node")


def is_reachable(address: str, *, allow_loopback: bool = False) -> bool:
    """Return whether the operator may connect to an IP address."""
    parsed = ipaddress.ip_address(address)
    meant = find_embedded(parsed)
    if meant.is_loopback or parsed.is_loopback:
        return allow_loopback
    return not (is_of_node(parsed) or (meant.version == 4 and meant.is_reserved))


def check_literal(host: str, *, allow_loopback: bool = False) -> None:
    """Check a host that is an IP address; names are checked when they are resolved.

    Raises:
        AddressRefused: The operator must not connect to it.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    if not is_reachable(host, allow_loopback=allow_loopback):
        raise AddressRefused(host)


def are_neighbors(first: str, second: str) -> bool:
    """Return whether two hosts are the same, or in one domain of two labels or more.

    Services and pods in one Kubernetes namespace are neighbors, in any form of their names.
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

    The connection uses exactly the checked addresses, so a DNS name that resolves to another
    address at a second look-up (DNS rebinding) does not evade the check.

    Args:
        allow_loopback: Whether connections to this machine itself are allowed.
    """

    def __init__(self, *, allow_loopback: bool = False) -> None:
        """Store the rule."""
        self._allow_loopback = allow_loopback

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a name.

        Raises:
            AddressRefused: Connections to all of its addresses are refused.
            OSError: The name has no address.
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
        """Do nothing."""
