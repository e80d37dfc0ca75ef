"""How a worker subscribes and receives, with a client that is a stand-in."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from operators.pulsarconsumer.app import subscriber
from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.harness import build_environment, running, wait_until
from operators.pulsarconsumer.app.source import Source
from slipway_handler import Message

_SERVER = "pulsar://nowhere:6650"
_NO_LOG = Path(os.devnull)
_RETRY_SECONDS = 0.5
_OVERLAP_SECONDS = 2.0
"""How long an attempt to subscribe takes at most."""


class Overlapping:
    """Refusals of old credentials, each when the next attempt has begun."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun = 0
        self.opening = 0
        self.renewed_while_opening: list[int] = []

    def open(self) -> None:
        with self.changed:
            self.begun += 1
            self.opening += 1
            mine = self.begun
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.begun > mine, _OVERLAP_SECONDS)
            self.opening -= 1
        raise pulsar.AuthenticationError("the credentials are old")

    def renew(self) -> None:
        with self.changed:
            self.renewed_while_opening.append(self.opening)


def test_old_credentials_are_replaced_between_attempts_that_would_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overlapping = Overlapping()
    monkeypatch.setattr(subscriber, "LAST_RETRY_SECONDS", _RETRY_SECONDS)
    monkeypatch.setattr(Source, "open", lambda _: overlapping.open())
    monkeypatch.setattr(Connection, "renew", lambda _: overlapping.renew())
    names = ",".join(f"persistent://public/default/{name}" for name in ("a", "b"))
    with running(build_environment(_SERVER, "", topics=names), _accept, _NO_LOG):
        wait_until(lambda: len(overlapping.renewed_while_opening) >= 2, "it is renewed twice")

    assert overlapping.renewed_while_opening[:2] == [0, 0]


class Consumer:
    """A consumer with the messages that a test sends."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self.acknowledged: list[bytes] = []

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            self._queue.put(payload)

    def receive(self, milliseconds: int) -> Any:
        try:
            return self._build(self._queue.get(timeout=milliseconds / 1000))
        except queue.Empty:
            raise pulsar.Timeout("nothing came") from None

    def batch_receive(self) -> Sequence[Any]:
        return [self._build(self._queue.get()) for _ in range(min(100, self._queue.qsize()))]

    def acknowledge(self, raw: Any) -> None:
        self.acknowledged.append(raw.data())

    def is_connected(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is left."""

    def _build(self, payload: bytes) -> Any:
        message_id = f"(1,{next(self._numbers)},-1,-1)"
        return SimpleNamespace(
            message_id=lambda: message_id,
            data=lambda: payload,
            publish_timestamp=lambda: 0,
            topic_name=lambda: "persistent://public/default/t",
            partition_key=lambda: "",
            ordering_key=lambda: "",
            properties=dict,
            event_timestamp=lambda: 0,
        )


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    found = Consumer()
    client = SimpleNamespace(subscribe=lambda *_, **__: found)
    monkeypatch.setattr(Connection, "client", lambda _: client)
    return found


def _accept(_message: Message) -> None:
    """Do nothing."""


@contextmanager
def consuming(handler: Callable[[Message], object], **settings: object) -> Iterator[None]:
    environ = build_environment(_SERVER, "t", log_sample_ratio=0, **settings)
    with running(environ, handler, _NO_LOG):
        yield


@pytest.mark.parametrize("quick", [0, 5000])
def test_call_that_waits_does_not_keep_the_next_message_from_another_thread(
    consumer: Consumer, quick: int
) -> None:
    met = threading.Barrier(3, timeout=60)

    def handle(message: Message) -> None:
        if message.data.startswith(b"wait"):
            begun.append(message.data)
            met.wait()

    begun: list[bytes] = []
    with consuming(handle, max_in_flight=2):
        consumer.send(*[b"quick"] * quick)
        wait_until(lambda: len(consumer.acknowledged) == quick, "the quick ones are handled")
        consumer.send(b"wait-1")
        wait_until(lambda: begun == [b"wait-1"], "the first call has begun")
        consumer.send(b"wait-2")
        wait_until(lambda: begun == [b"wait-1", b"wait-2"], "the second call has begun")
        assert len(consumer.acknowledged) == quick
        met.wait()
        wait_until(lambda: len(consumer.acknowledged) == quick + 2, "all are handled")


def test_messages_of_a_topic_stay_in_order_while_calls_take_different_times(
    consumer: Consumer,
) -> None:
    handled: list[int] = []

    def handle(message: Message) -> None:
        number = int(message.data)
        if number % 400 == 7:
            threading.Event().wait(0.15)
        handled.append(number)

    with consuming(handle, subscription_type="Exclusive", max_in_flight=4):
        for first in range(0, 2000, 500):
            consumer.send(*(b"%d" % number for number in range(first, first + 500)))
            wait_until(lambda: len(handled) >= 10, "some are handled")
        wait_until(lambda: len(consumer.acknowledged) == 2000, "all are handled")

    assert handled == list(range(2000))
