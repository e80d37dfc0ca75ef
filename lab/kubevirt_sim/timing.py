"""Time of the simulator: how long things take, and a clock that may run fast."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from libs.common.clock import Clock, Timer


class Timing(BaseModel):
    """How many seconds of the simulator's clock each step of the simulated world takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: float = Field(default=0.5, ge=0)
    """schedule is the time until a launcher pod is put on a node."""
    start_pod: float = Field(default=2, ge=0)
    """start_pod is the time until the containers of a launcher pod run."""
    boot: float = Field(default=5, ge=0)
    """boot is the time from a running pod to a running guest."""
    agent: float = Field(default=5, ge=0)
    """agent is the time from a running guest to a connected guest agent."""
    shutdown: float = Field(default=5, ge=0)
    """shutdown is the time that a guest takes to power off when it is asked to."""
    grace: float = Field(default=30, ge=0)
    """grace is how long a guest that does not power off is left alone where its spec says nothing;
    KubeVirt's default is 30 seconds."""
    bind: float = Field(default=7, ge=0)
    """bind is the time until a volume is bound on a class that waits for its first consumer."""
    import_disk: float = Field(default=10, ge=0)
    """import_disk is the time that the importer takes to fill a disk."""
    migrate: float = Field(default=5, ge=0)
    """migrate is the time that the copy of a live migration takes."""
    snapshot: float = Field(default=3, ge=0)
    """snapshot is the time until a snapshot of a machine can be used."""
    migration_pending: float = Field(default=300, ge=0)
    """migration_pending is how long a migration waits for a node; KubeVirt's default is 5
    minutes."""
    node_lost: float = Field(default=300, ge=0)
    """node_lost is the silence of a node after which its guests count as failed once their pods
    are gone; KubeVirt's default is 5 minutes."""
    crash_backoff: float = Field(default=300, ge=0)
    """crash_backoff is the longest wait before a machine that never comes to run is tried again;
    KubeVirt's default is 5 minutes."""


INSTANT = Timing(
    schedule=0,
    start_pod=0,
    boot=0,
    agent=0,
    shutdown=0,
    grace=0,
    bind=0,
    import_disk=0,
    migrate=0,
    snapshot=0,
    migration_pending=0,
    node_lost=0,
)
"""Everything happens immediately; only the back-off of crashing machines waits."""


class ScaledClock:
    """A clock on which delays pass faster than in reality; times of day are real.

    Args:
        speed: Seconds of delays that pass in a real second.
    """

    def __init__(self, speed: float = 1.0) -> None:
        """Keep the factor."""
        self._speed = speed

    def now(self) -> datetime:
        """Return the real time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds of delays that have passed, from an arbitrary start."""
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        """Wait for the scaled time."""
        await asyncio.sleep(seconds / self._speed)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back in the running loop after the scaled time."""
        return asyncio.get_running_loop().call_later(seconds / self._speed, callback)


class StepTimers:
    """Measures the duration of steps of objects.

    What is measured lives in memory alone: a simulator that is restarted begins each wait again.

    Args:
        clock: Time source.
    """

    def __init__(self, clock: Clock) -> None:
        """Start without running steps."""
        self.clock = clock
        self._began: dict[str, dict[str, float]] = {}

    def left(self, uid: str, step: str, seconds: float) -> float:
        """Return the seconds until a step has taken so long, 0 when it has.

        The first question begins the step.
        """
        now = self.clock.monotonic()
        began = self._began.setdefault(uid, {}).setdefault(step, now)
        # A hair is forgiven: sums of floats are not exact.
        rest = began + seconds - now
        return rest if rest > 1e-6 else 0.0

    def elapsed(self, uid: str, step: str) -> float:
        """Return the seconds since a step began; the first call begins the step."""
        now = self.clock.monotonic()
        return now - self._began.setdefault(uid, {}).setdefault(step, now)

    def reset(self, uid: str, step: str) -> None:
        """Forget a step: the next question begins it again."""
        self._began.get(uid, {}).pop(step, None)

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._began.pop(uid, None)
