"""A limit on messages per second, as a token bucket."""

from __future__ import annotations

from typing import Final

_BURST_SECONDS: Final = 0.1


class RateLimit:
    """A rate limit that allows bursts of the messages of 0.1 s."""

    def __init__(self, per_second: float, now: float) -> None:
        """Start with a full bucket.

        Args:
            per_second: Messages a second, more than 0.
            now: Seconds of a monotonic clock, as for `reserve`.
        """
        self._rate = per_second
        self._size = max(1.0, per_second * _BURST_SECONDS)
        self._tokens = self._size
        self._last = now

    def reserve(self, now: float) -> float:
        """Take a token and return the seconds until it is available, or 0."""
        passed = max(0.0, now - self._last)
        self._last = max(now, self._last)
        self._tokens = min(self._size, self._tokens + passed * self._rate) - 1.0
        return max(0.0, -self._tokens / self._rate)
