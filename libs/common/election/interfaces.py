"""Interfaces of the election, and the elector for processes without an election."""

import asyncio
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from libs.common.kinds import Key, Kind, Manifest


class LeaseClient(Protocol):
    """The methods of a client that the election uses."""

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """Read an object; raises NotFound."""

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create an object; raises AlreadyExists."""

    async def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Replace an object if its resource version matches; raises Conflict."""

    async def close(self) -> None:
        """Close the connections."""


class Elector(Protocol):
    """Decides whether this process leads."""

    def start(self) -> None:
        """Start; must be called in the main loop."""

    def is_leader(self) -> bool:
        """Return whether this process leads now; cheap, can be called from any thread."""

    @property
    def fencing_token(self) -> int:
        """A number that increases with each new leader."""

    def check(self) -> str | None:
        """Return what is wrong, or None; for /healthz."""

    async def stop(self) -> None:
        """Hand the leadership over and stop; call this after all work has been drained."""


class ElectionClock(Protocol):
    """The clocks that the election uses."""

    def monotonic(self) -> float:
        """Return monotonic seconds that include the time of a suspension of the machine."""

    def now(self) -> datetime:
        """Return the wall-clock time, for the times in the Lease."""

    async def sleep(self, seconds: float) -> None:
        """Wait in the running loop."""


class BootClock:
    """The clock of this machine, which continues during a suspension."""

    def monotonic(self) -> float:
        """Return the seconds since the machine started."""
        # Only Linux has this clock; without it, a suspension is only noticed at the first failing
        # renewal.
        boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boot is None else time.clock_gettime(boot)

    def now(self) -> datetime:
        """Return the wall clock in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait in the running loop."""
        await asyncio.sleep(seconds)


def build_identity(pod_name: str = "") -> str:
    """Return a unique identity of this process: `<pod>_<uuid>`.

    A restarted container in the same pod is another holder, because it does not know what the first
    one had started.
    """
    return f"{pod_name or socket.gethostname()}_{uuid.uuid4()}"


class SoleLeader:
    """The elector without an election: this process always leads."""

    def __init__(self, on_started_leading: Callable[[], object] = lambda: None) -> None:
        """Store the callback for the start."""
        self._on_started = on_started_leading
        self._leading = False

    def start(self) -> None:
        """Lead."""
        self._leading = True
        self._on_started()

    def is_leader(self) -> bool:
        """Return whether start() was called and stop() was not."""
        return self._leading

    @property
    def fencing_token(self) -> int:
        """Always 0."""
        return 0

    def check(self) -> str | None:
        """Return None: there is no election that could fail."""
        return None

    async def stop(self) -> None:
        """Stop leading."""
        self._leading = False
