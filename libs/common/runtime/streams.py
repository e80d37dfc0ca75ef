"""Streams: the duration of watches, and the pause before the next one."""

from __future__ import annotations

import math
from typing import Final

from libs.common.runtime.backoff import BackoffPolicy

STREAM_SECONDS: Final = 300
"""Minimum duration of a stream. Streams end so that load is redistributed over the API servers."""
SHORT_STREAM_SECONDS: Final = 1.0
"""A stream that ends sooner counts as a failure."""
RECONNECT: Final = BackoffPolicy(0.2, 30.0, jitter=0.5)
"""Back-off of a source that repeatedly loses its connection."""


def choose_stream_seconds(chance: float) -> int:
    """Return the duration of a stream: between the minimum and twice the minimum, as in client-go.

    Streams that begin at the same time must not all end at the same time. The number is an integer,
    because the API server refuses fractions.

    Args:
        chance: Random number in [0, 1).
    """
    return int(STREAM_SECONDS * (1.0 + chance))


class ReconnectDelay:
    """The pause before a stream, if earlier streams ended immediately."""

    def __init__(self) -> None:
        """Start without streams."""
        self._begun: dict[str, tuple[float, int]] = {}

    def begin(self, path: str, now: float) -> float:
        """Record that a stream begins, and return the seconds that it must wait first.

        Args:
            path: Path of the watch.
            now: Seconds of a monotonic clock.
        """
        begun, short = self._begun.get(path, (-math.inf, 0))
        short = short + 1 if now - begun < SHORT_STREAM_SECONDS else 0
        delay = RECONNECT.delay(short, 0.0) if short else 0.0
        self._begun[path] = (now + delay, short)
        return delay
