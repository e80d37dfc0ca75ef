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
        self.was_seen = threading.Event()
        self.taken = 0

    def deliver(self, number: int) -> None:
        """Deliver an entry, again if it was delivered before."""
        delivery = Delivery(number, self._broker.entries[number])
        delivery.left &= self._broker.left(number, delivery.left)
        for index in sorted(delivery.left):
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

    def negative_acknowledge(self, raw: Any) -> None:
        """Deliver an entry again."""
        if raw.delivery.number not in self._broker.acknowledged:
            self.deliver(raw.delivery.number)

    def redeliver_unacknowledged_messages(self) -> None:
        """Deliver all unacknowledged entries again, instead of those in the queue."""
        self._queue = queue.SimpleQueue()
        self._broker.deliver_all(self)

    def is_connected(self) -> bool:
        """Return whether the consumer is connected."""
        if not self.connected:
            self.was_seen.set()
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
        self.has_index_acks = False
        self._left: dict[int, set[int]] = {}
        self.copies: list[bytes] = []
        self.keys: Callable[[], str] = lambda: ""
        self.is_back = threading.Event()
        self.is_back.set()
        self.stores = threading.Event()
        self.stores.set()

    def add(self, *payloads: bytes) -> None:
        """Store an entry."""
        self.entries.append(payloads)
        for consumer in self.consumers[-1:]:
            consumer.deliver(len(self.entries) - 1)

    def left(self, number: int, default: set[int]) -> set[int]:
        """Return the indexes of an entry that are not acknowledged one by one."""
        return self._left.get(number, default)

    @property
    def backlog(self) -> int:
        """Number of unacknowledged entries."""
        return len(self.entries) - len(self.acknowledged)

    def lose(self) -> None:
        """Lose the connection; the next subscription waits until the broker is back."""
        self.is_back.clear()
        self.consumers[-1].connected = False

    def subscribe(self, topic: str, *_: object, **__: object) -> Consumer:
        """Return a consumer, which receives all unacknowledged messages."""
        if topic != TOPIC:
            return Consumer(self)
        self.is_back.wait(60)
        consumer = Consumer(self)
        self.deliver_all(consumer)
        self.consumers.append(consumer)
        return consumer

    def deliver_all(self, consumer: Consumer) -> None:
        """Deliver all unacknowledged entries."""
        for number in range(len(self.entries)):
            if number not in self.acknowledged:
                consumer.deliver(number)

    def skip_all(self) -> None:
        """Acknowledge all entries on behalf of an administrator."""
        self.acknowledged |= set(range(len(self.entries)))

    def reset(self) -> None:
        """Move the cursor to the first entry, which disconnects and reconnects the consumer."""
        self.acknowledged.clear()
        self._left.clear()
        consumer = self.consumers[-1]
        consumer.was_seen.clear()
        consumer.connected = False
        consumer.was_seen.wait(60)
        self.deliver_all(consumer)
        consumer.connected = True

    def create_reader(self, *_: object, **__: object) -> Any:
        """Refuse to read the attempts of others."""
        raise pulsar.TopicNotFound("there are no attempts")

    def create_producer(self, topic: str, **_: object) -> Any:
        """Return a producer, which stores copies, or times out."""

        def send(data: bytes, **_: object) -> None:
            if topic.endswith("-ATTEMPTS"):
                return
            if not self.stores.wait(0.5):
                raise pulsar.Timeout("the broker does not answer")
            self.copies.append(data)

        return SimpleNamespace(send=send, close=lambda: None)

    def close(self) -> None:
        """Do nothing."""

    def acknowledge(self, raw: Any) -> None:
        """Acknowledge a message as a part of its delivery."""
        raw.delivery.left.discard(raw.index)
        if self.has_index_acks:
            self._left.setdefault(raw.delivery.number, raw.delivery.left)
            self._left[raw.delivery.number] &= raw.delivery.left
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
            has_null_value=lambda: False,
            redelivery_count=lambda: 0,
            int_schema_version=lambda: -1,
        )
