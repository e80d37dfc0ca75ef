"""Streams: how long a watch may last, and how long to wait before the next one."""

from __future__ import annotations

import math
from typing import Final

from libs.common.runtime.backoff import BackoffPolicy

STREAM_SECONDS: Final = 300
"""How long one stream lives at least. Streams end, so that load is spread again over the API
servers."""
SHORT_STREAM_SECONDS: Final = 1.0
"""A stream that ends sooner counts as a failure."""
RECONNECT: Final = BackoffPolicy(0.2, 30.0, jitter=0.5)
"""What a source waits that lost its connection again and again."""


def choose_stream_seconds(chance: float) -> int:
    """Return how long a stream may live: between the least time and twice that, as in client-go.

    Streams that begin in the same moment must not all end in the same moment. The number is whole,
    since the API server refuses a fraction.

    Args:
        chance: Random number in [0, 1).
    """
    return int(STREAM_SECONDS * (1.0 + chance))


class Pace:
    """Say how long a stream has to wait that follows others which ended immediately."""

    def __init__(self) -> None:
        """Know of no stream yet."""
        self._begun: dict[str, tuple[float, int]] = {}

    def begin(self, path: str, now: float) -> float:
        """Note that a stream should begin, and return the seconds that it has to wait.

        Args:
            path: What is watched.
            now: Seconds on any clock that does not go back.
        """
        begun, short = self._begun.get(path, (-math.inf, 0))
        short = short + 1 if now - begun < SHORT_STREAM_SECONDS else 0
        delay = RECONNECT.delay(short, 0.0) if short else 0.0
        self._begun[path] = (now + delay, short)
        return delay
