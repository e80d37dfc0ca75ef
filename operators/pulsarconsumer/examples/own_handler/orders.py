"""Books orders: a handler in an image of its own, see the Dockerfile beside it."""

from __future__ import annotations

import sys

from slipway_handler import Message, Reject, RetryLater

_booked: set[str] = set()


def handle(message: Message) -> None:
    """Book an order.

    Raises:
        Reject: It is no order; no further try would help.
        RetryLater: The article is sold out, perhaps not for long.
    """
    order = message.value
    if not isinstance(order, dict) or "id" not in order:
        raise Reject("is not an order with an id")
    if order.get("stock") == 0:
        raise RetryLater(1, "sold out")
    # A message can come twice: what was done once is not done again. A handler that books for good
    # asks its database in place of a set.
    if order["id"] not in _booked:
        _booked.add(order["id"])
        sys.stderr.write(f"Booked order {order['id']}, try {message.attempt}\n")
