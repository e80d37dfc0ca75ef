"""A broker that stays up after the command: `./dev pulsar up` and `down`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path
from typing import Final

from operators.pulsarconsumer.testing.broker import Broker
from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.cluster.progress import Progress
from tools.pulsar.fetch import ensure_pulsar

PORT: Final = 6650
HTTP_PORT: Final = 8080
_STOP_SECONDS: Final = 20.0


def up(progress: Progress, cache: Cache, ports: tuple[int, int] = (PORT, HTTP_PORT)) -> Broker:
    """Start a broker unless one runs, and return it; what it stores is kept in the cache.

    Raises:
        ToolError: The broker cannot be fetched, or a port is taken.
        TimeoutError: It did not become healthy.
    """
    folder = cache.path("pulsar-data", "broker.pid").parent
    broker = Broker(ensure_pulsar(progress, cache), ports=ports, folder=folder)
    if find_pid(folder) is None:
        check_ports(ports)
        with progress.step("Pulsar broker", "10 seconds"):
            broker.start()
        cache.write(folder / "broker.pid", str(broker.pid))
    return broker


def check_ports(ports: tuple[int, int]) -> None:
    """Check that both ports are free: the port for clients and the port of the admin API.

    Raises:
        ToolError: One is taken.
    """
    for flag, port in zip(("--port", "--http-port"), ports, strict=True):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as err:
                raise ToolError(f"Port {port}: {err}; name another one by {flag}") from err


def down(cache: Cache) -> bool:
    """Stop the broker and return whether it was running; its data is kept."""
    folder = cache.path("pulsar-data", "broker.pid").parent
    pid = find_pid(folder)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while find_pid(folder) is not None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    (folder / "broker.pid").unlink(missing_ok=True)
    return True


def find_pid(folder: Path) -> int | None:
    """Return the process id of the broker that was started for a folder, or None."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "broker.pid").read_text())
        # Another process may have the number by now.
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return pid if str(folder).encode() in command else None
    return None
