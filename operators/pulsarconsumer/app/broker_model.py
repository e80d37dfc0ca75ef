"""A model of a broker for tests, with redelivery and the batch acknowledgment of the client."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pulsar

TOPIC: Final = "persistent://public/default/t"
"""The only topic."""


class Delivery:
    """An entry that one consumer received; acknowledged when all its messages are acknowledged."""

    def __init__(self, number: int, payloads: Sequence[bytes]) -> None:
        """Start with no acknowledged messages."""
        self.number, self.payloads = number, payloads
        self.left = set(range(len(payloads)))


class Consumer:
    """A consumer of the model, which replaces both the wrapper and the native part."""

    def __init__(self, broker: BrokerModel) -> None:
        """Start connected, with an empty queue."""
        self._consumer = self
        self._broker = broker
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.connected = True
        self.taken = 0

    def deliver(self, number: int) -> None:
        """Deliver an entry, again if it was delivered before."""
        delivery = Delivery(number, self._broker.entries[number])
        for index in range(len(delivery.payloads)):
            self._queue.put(self._broker.build(delivery, index))

    def receive(self, milliseconds: int) -> Any:
        """Return the next message, or raise pulsar.Timeout."""
        try:
            raw = self._queue.get(timeout=milliseconds / 1000)
        except queue.Empty:
            raise pulsar.Timeout("nothing came") from None
        self.taken += 1
        return raw

    def batch_receive(self) -> list[Any]:
        """Return all messages in the queue."""
        return [self.receive(1) for _ in range(min(100, self._queue.qsize()))]

    def acknowledge(self, raw: Any) -> None:
        """Acknowledge a message of this consumer or of an earlier one."""
        self._broker.acknowledge(raw)

    def is_connected(self) -> bool:
        """Return whether the consumer is connected."""
        return self.connected

    def close(self) -> None:
        """Close."""
        self.connected = False


class BrokerModel:
    """A client and its broker, which redelivers unacknowledged messages to each new consumer."""

    def __init__(self) -> None:
        """Start without entries and consumers."""
        self.entries: list[Sequence[bytes]] = []
        self.consumers: list[Consumer] = []
        self.acknowledged: set[int] = set()
        self.copies: list[bytes] = []
        self.keys: Callable[[], str] = lambda: ""
        self.is_back = threading.Event()
        self.is_back.set()

    def add(self, *payloads: bytes) -> None:
        """Store an entry."""
        self.entries.append(payloads)
        for consumer in self.consumers[-1:]:
            consumer.deliver(len(self.entries) - 1)

    @property
    def backlog(self) -> int:
        """Number of unacknowledged entries."""
        return len(self.entries) - len(self.acknowledged)

    def lose(self) -> None:
        """Lose the connection; the next subscription waits until the broker is back."""
        self.is_back.clear()
        self.consumers[-1].connected = False

    def subscribe(self, *_: object, **__: object) -> Consumer:
        """Return a consumer, which receives all unacknowledged messages."""
        self.is_back.wait(60)
        consumer = Consumer(self)
        for number in range(len(self.entries)):
            if number not in self.acknowledged:
                consumer.deliver(number)
        self.consumers.append(consumer)
        return consumer

    def create_producer(self, *_: object, **__: object) -> Any:
        """Return a producer, which stores copies."""
        return SimpleNamespace(send=lambda data, **_: self.copies.append(data), close=lambda: None)

    def close(self) -> None:
        """Do nothing."""

    def acknowledge(self, raw: Any) -> None:
        """Acknowledge a message as a part of its delivery."""
        raw.delivery.left.discard(raw.index)
        if not raw.delivery.left:
            self.acknowledged.add(raw.delivery.number)

    def build(self, delivery: Delivery, index: int) -> Any:
        """Return a message of a delivery with the interface of the native client."""
        batch_index = index if len(delivery.payloads) > 1 else -1
        return SimpleNamespace(
            delivery=delivery,
            index=index,
            message_id=lambda: f"(1,{delivery.number},-1,{batch_index})",
            data=lambda: delivery.payloads[index],
            length=lambda: len(delivery.payloads[index]),
            publish_timestamp=lambda: 0,
            event_timestamp=lambda: 0,
            topic_name=lambda: TOPIC,
            partition_key=self.keys,
            ordering_key=lambda: "",
            properties=dict,
            redelivery_count=lambda: 0,
            int_schema_version=lambda: -1,
        )
