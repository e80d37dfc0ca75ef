"""Streams: how long a watch may last, and how long to wait before the next one."""

from __future__ import annotations

import math
from typing import Final

from libs.common.runtime.backoff import BackoffPolicy

STREAM_SECONDS: Final = 300
"""How long one stream may live, so that load is spread anew over API servers. A whole number: the
API server refuses a fraction."""
SHORT_STREAM_SECONDS: Final = 1.0
"""A stream that ends sooner counts as a failure."""
RECONNECT: Final = BackoffPolicy(0.2, 30.0, jitter=0.5)
"""What a source waits that lost its connection again and again."""


class Pace:
    """Say how long a stream has to wait that follows others which ended at once."""

    def __init__(self) -> None:
        """Know of no stream yet."""
        self._begun: dict[str, tuple[float, int]] = {}

    def begin(self, path: str, now: float) -> float:
        """Note that a stream is to begin, and return the seconds that it has to wait.

        Args:
            path: What is watched.
            now: Seconds on any clock that does not go back.
        """
        begun, short = self._begun.get(path, (-math.inf, 0))
        short = short + 1 if now - begun < SHORT_STREAM_SECONDS else 0
        delay = RECONNECT.delay(short, 0.0) if short else 0.0
        self._begun[path] = (now + delay, short)
        return delay
