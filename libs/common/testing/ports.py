"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import Final

_PORTS: Final = range(20_000, 30_000)
"""Linux gives none of these ports to outgoing connections, and Kubernetes none to Services."""


def find_free_port() -> int:
    """Return a port of the loopback address that nobody uses now.

    The caller binds it later. A port that the system chooses could by then belong to an outgoing
    connection, because both come from the same range.
    """
    while True:
        # Not from `random`: test tools seed it, and then all processes would choose equal ports.
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
