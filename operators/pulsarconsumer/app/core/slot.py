"""What a thread works on, for anyone who watches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Slot[T]:
    """What a thread works on.

    Attributes:
        thread: Its identifier.
        lender: Whom the thread serves otherwise; None if it only works on items.
        item: The item; None for none.
        began: Time of the monotonic clock at which the call of the handler began; 0 for no call.
        seconds: How long the calls for the item took: of the handler, and to store a copy.
    """

    thread: int
    lender: object = None
    item: T | None = None
    began: float = 0.0
    seconds: float = 0.0
