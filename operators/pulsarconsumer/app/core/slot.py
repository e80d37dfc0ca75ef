"""The current work of a thread, for the thread that supervises it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Slot[T]:
    """The current work of a thread.

    Attributes:
        thread: Identifier of the thread.
        lender: Source that the thread normally receives from; None if it only works on items.
        item: The current item; None for none.
        began: Monotonic time at which the call of the handler began; 0 for no call.
        seconds: Duration of the calls for the item: of the handler, and to store a copy.
    """

    thread: int
    lender: object = None
    item: T | None = None
    began: float = 0.0
    seconds: float = 0.0
