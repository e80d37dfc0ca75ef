"""Books orders: a handler in its own image; see the Dockerfile in this folder."""

from __future__ import annotations

import sys

from slipway_handler import Message, Reject, RetryLater

_booked: set[str] = set()


def handle(message: Message) -> None:
    """Book an order.

    Raises:
        Reject: The message is not an order, so another attempt would fail as well.
        RetryLater: The article is sold out for now.
    """
    order = message.value
    if not isinstance(order, dict) or "id" not in order:
        raise Reject("is not an order with an id")
    if order.get("stock") == 0:
        raise RetryLater(1, "sold out")
    # A message can be delivered twice, so each order is booked only once. A real handler would use
    # its database instead of a set.
    if order["id"] not in _booked:
        _booked.add(order["id"])
        sys.stderr.write(f"Booked order {order['id']}, try {message.attempt}\n")
