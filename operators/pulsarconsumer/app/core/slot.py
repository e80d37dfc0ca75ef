"""What a thread works on, for anyone who watches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Slot[T]:
    """What a thread works on.

    Attributes:
        thread: Its identifier.
        item: The item; None for none.
        began: Time of the monotonic clock at which the call of the handler began; 0 for no call.
        seconds: How long the last call took.
    """

    thread: int
    item: T | None = None
    began: float = 0.0
    seconds: float = 0.0
