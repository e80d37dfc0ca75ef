"""How long things take on simulated nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that things take.

    Attributes:
        start: From the binding of a pod until its containers run.
        stop: From the deletion of a pod until it is gone, at most its grace period.
        heartbeat: Between two renewals of the Lease of a node.
    """

    start: float = 0.3
    stop: float = 0.5
    heartbeat: float = 10.0


INSTANT = Timing(0.0, 0.0)
