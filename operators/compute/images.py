"""Which images disks may be filled from. Pure.

The importer of CDI fetches an image from the network of pods, which no policy of a tenant limits,
and writes the response to the disk of the tenant. So an address of the node itself, such as the
metadata service of a cloud, must not be an image.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from libs.common.node_addresses import is_of_node
from libs.contracts.images import Image

_LOCAL: Final = (
    "localhost",
    "ip6-localhost",
    "ip6-loopback",
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
)
"""Names that every pod has for itself, and names of metadata services of clouds."""
_REGISTRY: Final = "docker.io"
"""Registry of container disks whose address names none: `docker://debian` or `docker://my/disk`."""


def explain_refused(image: Image, allowed: Sequence[str]) -> str:
    """Return why no disk may be filled from an image; empty if one may.

    Args:
        image: The image.
        allowed: Patterns of hosts, such as `*.example.com`; none allows all other hosts. A host
            that is an address of the node is allowed only by its name.
    """
    address = image.url or image.registry
    if address is None:
        return ""
    host = _find_host(address)
    # Importers decode hosts: an escape would hide an address, and a zone would pass for a name.
    if not host or "\\" in address or "%" in host:
        return f"{address} names no host; correct image.url or image.registry"
    local = _is_local(host)
    if not allowed:
        refused = "is an address of the node or of the importer; use the host of an image"
        return f"{host} {refused}" if local else ""
    patterns = [pattern.lower() for pattern in allowed]
    if host in patterns or (not local and any(fnmatchcase(host, each) for each in patterns)):
        return ""
    return (
        f"the administrator allows no images from {host}; use an image from "
        f"{', '.join(allowed)}, or have the host added to the setting image_hosts"
    )


def _find_host(address: str) -> str:
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return ""
    named = any(sign in parts.netloc for sign in ".:") or host == "localhost"
    if parts.scheme == "docker" and not (named and parts.path.strip("/")):
        return _REGISTRY
    return host


def _is_local(host: str) -> bool:
    try:
        # Importers convert international digits and dots of a host as well.
        host = host if host.isascii() else host.encode("idna").decode().lower()
    except UnicodeError:
        return True
    address = _parse_address(host)
    if address is None:
        return host in _LOCAL or host.endswith(".localhost")
    return is_of_node(address)


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        # The C library accepts 2852039166 and 0xa9.254.43518 as well.
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
