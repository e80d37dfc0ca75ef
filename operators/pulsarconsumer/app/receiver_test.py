"""Messages come one at a time, and many at a time while many wait."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from operators.pulsarconsumer.app.harness import build_environment
from operators.pulsarconsumer.app.receiver import MessageReceiver
from operators.pulsarconsumer.app.settings import load_settings


class FakeConsumer:
    """Has messages without end, or none at a time."""

    def __init__(self, *batches: Sequence[str]) -> None:
        self.batches = list(batches)
        self.asked: list[str] = []

    def receive(self, _timeout: int) -> str:
        self.asked.append("one")
        return "m"

    def batch_receive(self) -> Sequence[str]:
        self.asked.append("many")
        return self.batches.pop(0)


@pytest.mark.parametrize(
    ("many", "settings", "asked"),
    [
        # A queue that is empty for a moment is waited for.
        (True, {}, ["many", "many", "one"]),
        (False, {}, ["one", "one"]),
        (True, {"ack_timeout_seconds": 10}, ["one", "one"]),
    ],
)
def test_many_are_taken_at_once_unless_handling_is_slow_or_the_time_is_bounded(
    many: bool, settings: dict[str, object], asked: list[str]
) -> None:
    consumer = FakeConsumer(["m"] * 50, [])
    environ = build_environment("pulsar://p:6650", "t", receiver_queue_size=100, **settings)
    message_receiver = MessageReceiver(consumer, load_settings(environ))

    taken = [len(message_receiver.receive(many=many)) for _ in range(2)]
    assert taken == ([50, 1] if len(asked) == 3 else [1, 1])
    assert consumer.asked == asked


class BatchConsumer:
    """Has messages of some bytes, a few at a time, and a clock that moves while it waits."""

    def __init__(self, come: Sequence[int], size: int = 1) -> None:
        self.now = 0.0
        self.come = list(come)
        self.size = size
        self.number = 0

    def next(self) -> SimpleNamespace:
        self.number += 1
        return SimpleNamespace(number=self.number, data=lambda: b"x" * self.size)

    def receive(self, _timeout: int) -> SimpleNamespace:
        return self.next()

    def batch_receive(self) -> Sequence[SimpleNamespace]:
        self.now += 0.001
        return [self.next() for _ in range(self.come.pop(0) if self.come else 0)]


LISTS = {"handler": "operators.pulsarconsumer.app.handlers:accept", "handler_batch": True}


def take_batches(consumer: BatchConsumer, times: int, **settings: object) -> list[list[int]]:
    environ = build_environment("pulsar://p:6650", "t", **settings)
    message_receiver = MessageReceiver(
        consumer, load_settings(environ), monotonic=lambda: consumer.now
    )
    return [[message.number for message in message_receiver.receive()] for _ in range(times)]


def test_batch_waits_for_its_messages_and_keeps_what_is_too_many() -> None:
    consumer = BatchConsumer([10, 4, 0, 3, 6])
    assert take_batches(consumer, 3, batch_max_messages=10, **LISTS) == [
        list(range(1, 11)),
        list(range(11, 21)),
        list(range(21, 24)),
    ]
    # It waited no longer than it may, which is 100 ms by default.
    assert consumer.now == pytest.approx(0.105)


def test_messages_that_are_handled_one_by_one_are_not_divided_into_full_batches() -> None:
    consumer = BatchConsumer([4, 8, 10, 3])
    assert [len(batch) for batch in take_batches(consumer, 4, batch_max_messages=10)] == [
        4,
        8,
        10,
        3,
    ]


def test_batch_of_large_messages_ends_at_its_bytes() -> None:
    consumer = BatchConsumer([2, 3, 1], size=40)
    assert take_batches(consumer, 2, batch_max_messages=10, batch_max_bytes=100, **LISTS) == [
        [1, 2],
        [3, 4],
    ]


def test_message_that_exceeds_the_bytes_of_a_batch_is_a_batch_of_its_own() -> None:
    consumer = BatchConsumer([3], size=200)
    assert take_batches(consumer, 3, batch_max_messages=10, batch_max_bytes=100, **LISTS) == [
        [1],
        [2],
        [3],
    ]
