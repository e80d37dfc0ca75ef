"""The proxy of the environment for a URL, by the rules of Go's net/http, and so of kubectl."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from libs.common.errors import ConfigError

_PORTS: Final = {"http": 80, "https": 443}


def find_proxy(url: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the proxy for a URL: HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY excludes the host.

    Variables in lower case count as well. Loopback addresses are never proxied.

    Raises:
        ConfigError: The proxy is not an HTTP proxy.
    """
    variables = os.environ if environ is None else environ
    target = urlsplit(url)
    name = f"{target.scheme.upper()}_PROXY"
    proxy = variables.get(name) or variables.get(name.lower()) or ""
    excluded = variables.get("NO_PROXY") or variables.get("no_proxy") or ""
    host = (target.hostname or "").rstrip(".")
    if not proxy or _is_excluded(host, target.port or _PORTS.get(target.scheme, 0), excluded):
        return ""
    return check_proxy(proxy if "://" in proxy else f"http://{proxy}", name)


def check_proxy(proxy: str, origin: str) -> str:
    """Return the URL of a proxy that is supported.

    Args:
        proxy: The URL.
        origin: Name of what sets it, for the error.

    Raises:
        ConfigError: The proxy is not an HTTP proxy.
    """
    if proxy and urlsplit(proxy).scheme not in _PORTS:
        # The URL may contain a password.
        scheme = urlsplit(proxy).scheme
        raise ConfigError(
            f"{origin} names a proxy with scheme {scheme}: use an http or https proxy"
        )
    return proxy


def _is_excluded(host: str, port: int, excluded: str) -> bool:
    address = _parse_address(host)
    if host == "localhost" or (address and address.is_loopback):
        return True
    return any(
        _matches(entry.strip().lower().rstrip("."), host, port, address)
        for entry in excluded.split(",")
        if entry.strip()
    )


type _Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _matches(entry: str, host: str, port: int, address: _Address | None) -> bool:
    if entry == "*":
        return True
    if address:
        try:
            return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            pass
    name, colon, number = entry.rpartition(":")
    if colon and number.isdigit() and _parse_address(entry) is None:
        if int(number) != port:
            return False
        entry = name.strip("[]").rstrip(".")
    if address:
        return _parse_address(entry) == address
    domain = entry.removeprefix("*")
    # `.example.com` excludes subdomains only, `example.com` the domain as well.
    return host == domain or host.endswith(domain if domain.startswith(".") else f".{domain}")


def _parse_address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
