"""Repairs of objects that another client changes again and again."""

from __future__ import annotations

from typing import Final

from libs.common.clock import Clock, SystemClock
from libs.common.runtime.backoff import BackoffPolicy

_IMMEDIATE: Final = 5
"""Repairs of an object without a delay."""
_DELAYS: Final = BackoffPolicy(1.0)
_CALM_SECONDS: Final = 900.0
"""Time without a repair after which an object counts as left alone."""
_LIMIT: Final = 10_000
_NEVER: Final = ("", 0.0, 0)


class Repairs:
    """Decides when an object may be repaired again.

    Two clients that correct each other would otherwise write without end.

    Args:
        clock: Time source.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """Start empty."""
        self._clock = clock or SystemClock()
        self._applied: dict[str, tuple[str, float, int]] = {}

    def note_applied(self, uid: str, desired: str) -> None:
        """Record an apply that changed an object: a repair if the same state was applied before."""
        (before, time, repairs), now = self._applied.pop(uid, _NEVER), self._clock.monotonic()
        again = before == desired and now - time < _CALM_SECONDS
        self._applied[uid] = (desired, now, repairs + 1 if again else 0)
        if len(self._applied) > _LIMIT:
            del self._applied[next(iter(self._applied))]

    def seconds_to_next(self, uid: str, desired: str) -> float:
        """Return the seconds until the next repair is due; 0 if it may be done now."""
        before, time, repairs = self._applied.get(uid, _NEVER)
        if before != desired or repairs < _IMMEDIATE:
            return 0.0
        due = time + _DELAYS.delay(repairs - _IMMEDIATE + 1, 0.0)
        return max(0.0, due - self._clock.monotonic())
