"""Addresses to listen on, in the form that controller-runtime's flags have."""

from typing import NamedTuple

_HIGHEST_PORT = 65_535


class BindAddress(NamedTuple):
    """Where a server listens."""

    host: str
    """Host name or IP; empty means every interface."""
    port: int
    """TCP port; 0 means one that the system chooses."""


def parse_bind_address(text: str) -> BindAddress | None:
    """Parse `:8080`, `127.0.0.1:8080` or `[::1]:8080`.

    Returns:
        The address, or None for `0` and for an empty text, which disable the server.

    Raises:
        ValueError: The text is none of these.
    """
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_bare_ipv6 = ":" in host and not text.startswith("[")
    if not colon or is_bare_ipv6 or not port.isdecimal() or int(port) > _HIGHEST_PORT:
        raise ValueError("must be [host]:port such as ':8080' or '[::1]:8080', or '0' to disable")
    return BindAddress(host, int(port))
