"""The example of a handler, tested as its author would: without a broker."""

from __future__ import annotations

from operators.pulsarconsumer.examples.own_handler.orders import handle
from slipway_handler.testing import build_message, drive


def test_orders_are_booked_tried_again_and_rejected() -> None:
    orders = [{"id": "a"}, {"id": "a"}, {"id": "b", "stock": 0}, ["no order"]]

    run = drive(handle, [build_message(value=order) for order in orders])

    # A consumer does the same with a real broker: see app/process_broker_test.py.
    assert run.results == ["acknowledged", "acknowledged", "retried", "rejected"]
