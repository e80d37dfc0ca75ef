"""What the election asks of others, what it is to them, and the stand-in for no election."""

import asyncio
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from libs.common.kinds import Key, Kind, Manifest


class LeaseClient(Protocol):
    """What the election needs of a client."""

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """Read an object; raises NotFound."""

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create an object; raises AlreadyExists."""

    async def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Replace an object of the manifest's resource version; raises Conflict."""

    async def close(self) -> None:
        """Close the connections."""


class Elector(Protocol):
    """Says whether this process leads."""

    def start(self) -> None:
        """Begin, from within the main loop."""

    def is_leader(self) -> bool:
        """Return whether this process leads now; may be asked from any thread, at no cost."""

    @property
    def fencing_token(self) -> int:
        """A number that grows with each new leader."""

    def check(self) -> str | None:
        """Say what is wrong, or None; for /healthz."""

    async def stop(self) -> None:
        """Hand the leadership over and end; call it after the work was drained."""


class ElectionClock(Protocol):
    """The times that the election needs."""

    def monotonic(self) -> float:
        """Return seconds that never go back, and that continue while the machine is suspended."""

    def now(self) -> datetime:
        """Return the wall clock, for the times in the Lease that people read."""

    async def sleep(self, seconds: float) -> None:
        """Wait in the running loop."""


class BootClock:
    """The clock of this machine that counts the time of a suspension too."""

    def monotonic(self) -> float:
        """Return the seconds since the machine started."""
        # Linux has it; without it, a suspension is noticed at the first failing renewal only.
        boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boot is None else time.clock_gettime(boot)

    def now(self) -> datetime:
        """Return the wall clock in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait in the running loop."""
        await asyncio.sleep(seconds)


def build_identity(pod_name: str = "") -> str:
    """Return an identity that no other process ever has: `<pod>_<uuid>`.

    A container that restarts in the same pod is another holder: what the first one had begun is
    not known to the second.
    """
    return f"{pod_name or socket.gethostname()}_{uuid.uuid4()}"


class SoleLeader:
    """Stands in if there is no election: this process always leads."""

    def __init__(self, on_started_leading: Callable[[], object] = lambda: None) -> None:
        """Take what is called at the start."""
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
        """Return None: nothing can go wrong."""
        return None

    async def stop(self) -> None:
        """Stop leading."""
        self._leading = False
