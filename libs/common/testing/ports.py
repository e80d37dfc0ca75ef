"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import tempfile
from collections import deque
from pathlib import Path
from typing import Final

_PORTS: Final = range(20_000, 30_000)
"""Linux gives none of these ports to outgoing connections, and Kubernetes none to Services."""
_RESERVED: Final = 64
"""Number of ports that a process reserves at the same time: its latest ones."""

_locks: deque[int] = deque()
"""Descriptors of the locks that reserve ports for this process."""


def find_free_port() -> int:
    """Return a port of the loopback address that nobody uses now.

    The caller binds it later. A port that the system chooses could by then belong to an outgoing
    connection, because both come from the same range. Other test processes do not choose the port
    either: it is reserved until this process ends or has found many other ports.
    """
    while True:
        # Not from `random`: test tools seed it, and then all processes would choose equal ports.
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        if not _reserve(port):
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _reserve(port: int) -> bool:
    """Lock a file of the port; return whether nobody had locked it, this process included."""
    folder = Path(tempfile.gettempdir(), f"slipway-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    _locks.append(lock)
    if len(_locks) > _RESERVED:
        os.close(_locks.popleft())
    return True
