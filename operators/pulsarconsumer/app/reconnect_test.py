"""Messages at a lost connection, while handlers are busy, and at the end.

The model of a broker has redelivery and the batch acknowledgment of the client.
"""

from __future__ import annotations

import copy
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pulsar
import pytest

from operators.pulsarconsumer.app import connection as connection_module
from operators.pulsarconsumer.app import redelivery
from operators.pulsarconsumer.app import source as source_module
from operators.pulsarconsumer.app.harness import (
    RunningWorker,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.app.journal import Journal
from slipway_handler import Message, PartialFailure

TOPIC: Final = "persistent://public/default/t"
"""The only topic."""


class Delivery:
    """An entry that one consumer received; acknowledged when all its messages are acknowledged."""

    def __init__(self, number: int, payloads: Sequence[bytes]) -> None:
        """Start with no acknowledged messages."""
        self.number, self.payloads = number, payloads
        self.left = set(range(len(payloads)))


class Consumer:
    """A consumer of the model."""

    def __init__(self, broker: BrokerModel) -> None:
        """Start connected, with an empty queue."""
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
            publish_timestamp=lambda: 0,
            event_timestamp=lambda: 0,
            topic_name=lambda: TOPIC,
            partition_key=self.keys,
            ordering_key=lambda: "",
            properties=dict,
            has_null_value=lambda: False,
            redelivery_count=lambda: 0,
            schema_version=lambda: "",
        )


_SERVER = "pulsar://nowhere:6650"
_HOUR = 3600


class Blocking:
    """A handler that waits for its release, for the payloads that a test names."""

    def __init__(self, *waits: bytes) -> None:
        self.waits, self.go = waits, threading.Event()
        self.calls: list[bytes] = []

    def __call__(self, message: Message) -> None:
        self.calls.append(message.data)
        if message.data in self.waits:
            self.go.wait(60)
        if message.data.startswith(b"p"):
            raise ValueError("poison")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerModel]:
    model = BrokerModel()
    monkeypatch.setattr(connection_module, "build_client", lambda _: model)
    monkeypatch.setattr(source_module, "BROKEN_SECONDS", 0.0)
    yield model
    model.is_back.set()


@contextmanager
def consuming(
    handler: Callable[[Any], object], folder: Path, /, **values: object
) -> Iterator[RunningWorker]:
    environ = build_environment(
        _SERVER,
        TOPIC,
        **{"retry_initial_delay_seconds": _HOUR, "retry_max_delay_seconds": _HOUR, **values},
    )
    with running(environ, handler, folder / "log") as worker:
        wait_until(lambda: worker.sources[-1].is_open, "it is subscribed")
        yield worker


def lose(broker: BrokerModel, worker: RunningWorker) -> None:
    broker.lose()
    wait_until(lambda: not worker.sources[-1].is_open, "the consumer is closed")


def test_message_that_waited_for_its_attempt_is_not_lost_if_another_of_its_batch_fails_later(
    broker: BrokerModel, tmp_path: Path
) -> None:
    handler = Blocking(b"p1")
    with consuming(handler, tmp_path, max_in_flight=2) as worker:
        broker.add(b"p0", b"p1")
        wait_until(lambda: worker.handled("retried") == 1, "the first waits for its attempt")
        wait_until(lambda: b"p1" in handler.calls, "the second is handled")
        lose(broker, worker)
        handler.go.set()
        wait_until(lambda: worker.handled("retried") == 2, "the second fails meanwhile")
        broker.is_back.set()
        wait_until(lambda: handler.calls.count(b"p0") == 2, "the first is handled again")


def test_batch_is_acknowledged_though_a_message_was_handled_while_it_came_again(
    broker: BrokerModel, tmp_path: Path
) -> None:
    handler = Blocking(b"slow")
    with consuming(handler, tmp_path) as worker:
        broker.add(b"slow", b"g1", b"g2")
        wait_until(lambda: handler.calls == [b"slow"], "it is handled")
        lose(broker, worker)
        broker.is_back.set()
        wait_until(lambda: len(broker.consumers) == 2, "it is connected again")
        # The last one may have to wait, since the handler is busy.
        wait_until(lambda: broker.consumers[1].taken >= 2, "they come again")
        handler.go.set()
        wait_until(lambda: broker.backlog == 0, "the batch is acknowledged")

    assert handler.calls == [b"slow", b"g1", b"g2"]


@pytest.mark.parametrize("values", [{}, {"rate_limit_per_second": 1000}])
def test_lost_connection_is_replaced_while_messages_wait_for_a_handler_that_is_busy(
    values: dict[str, object], broker: BrokerModel, tmp_path: Path
) -> None:
    handler = Blocking(b"slow")
    with consuming(handler, tmp_path, **values) as worker:
        broker.add(b"slow")
        for number in range(250):
            broker.add(b"%d" % number)
        wait_until(lambda: handler.calls == [b"slow"], "it is handled")
        lose(broker, worker)
        broker.is_back.set()
        wait_until(lambda: len(broker.consumers) == 2, "it is connected again")
        handler.go.set()
        wait_until(lambda: broker.backlog == 0, "all are acknowledged")

    assert len(handler.calls) == len(set(handler.calls)) == 251


def test_lost_connection_is_replaced_while_the_rate_limit_asks_to_wait(
    broker: BrokerModel, tmp_path: Path
) -> None:
    with consuming(Blocking(), tmp_path, rate_limit_per_second=0.001) as worker:
        for number in range(3):
            broker.add(b"%d" % number)
        wait_until(lambda: worker.handled("acknowledged") == 1, "the first is handled")
        wait_until(lambda: broker.consumers[0].taken == 2, "the second waits")
        lose(broker, worker)
        broker.is_back.set()


def test_messages_stay_with_the_broker_while_calls_take_long(
    broker: BrokerModel, tmp_path: Path
) -> None:
    waiting: list[int] = []

    def handle(_message: Message) -> None:
        threading.Event().wait(0.15)
        waiting.append(broker.consumers[0].taken - len(waiting) - 1)

    with consuming(handle, tmp_path):
        for number in range(60):
            broker.add(b"%d" % number)
        wait_until(lambda: len(waiting) >= 6, "some are handled")

    assert max(waiting) <= 4


def test_call_that_hangs_is_noticed_while_others_are_due(
    broker: BrokerModel, tmp_path: Path
) -> None:
    handler = Blocking(b"slow")
    delay = {"retry_initial_delay_seconds": 0.2, "handler_timeout_seconds": 1}
    with consuming(handler, tmp_path, receiver_queue_size=1000, **delay) as worker:
        broker.add(b"p0", *(b"p%d" % number for number in range(1, 150)), b"slow")
        wait_until(lambda: b"slow" in handler.calls, "it hangs")
        wait_until(lambda: worker.worker.failure, "it is noticed", 20)
        handler.go.set()


def test_message_that_fails_after_it_went_back_to_the_broker_is_not_copied(
    broker: BrokerModel, tmp_path: Path
) -> None:
    handler = Blocking(b"p0")
    failed = threading.Event()

    def handle(message: Message) -> None:
        try:
            handler(message)
        finally:
            failed.set()

    values = {"retry_strategy": "RetryTopic", "dead_letter": "Enabled", "retry_max_attempts": 1}
    environ = build_environment(_SERVER, TOPIC, **values)
    worker = RunningWorker(environ, handle, tmp_path / "log")
    wait_until(lambda: worker.sources[-1].is_open, "it is subscribed")
    broker.add(b"p0")
    wait_until(lambda: handler.calls == [b"p0"], "it is handled")
    worker.stop(0.1)
    handler.go.set()
    failed.wait(60)
    wait_until(lambda: worker.value("broker_errors_total", operation="dead_letter"), "it failed")

    assert broker.copies == []
    assert broker.backlog == 1


def test_message_whose_acknowledgment_times_out_is_not_handled_twice_at_a_time(
    broker: BrokerModel, tmp_path: Path
) -> None:
    handler = Blocking(b"slow")
    with consuming(handler, tmp_path, max_in_flight=2, ack_timeout_seconds=10):
        broker.add(b"slow")
        wait_until(lambda: handler.calls == [b"slow"], "it is handled")
        broker.consumers[0].deliver(0)
        broker.add(b"later")
        wait_until(lambda: b"later" in handler.calls, "it came again")
        handler.go.set()
        wait_until(lambda: broker.backlog == 0, "all are acknowledged")

    assert handler.calls == [b"slow", b"later"]


@pytest.mark.parametrize("kind", ["Shared", "KeyShared"])
def test_key_that_is_not_text_stops_nothing(kind: str, broker: BrokerModel, tmp_path: Path) -> None:
    def raise_error() -> str:
        return b"\xff".decode()

    broker.keys = raise_error
    keys: list[str] = []
    with consuming(lambda message: keys.append(message.key), tmp_path, subscription_type=kind):
        broker.add(b"a")
        wait_until(lambda: broker.backlog == 0, "it is handled")

    assert keys == [""]


def test_messages_of_a_list_are_handled_and_recorded_one_by_one_after_a_crash(
    broker: BrokerModel, tmp_path: Path
) -> None:
    Journal(str(tmp_path / "journal"))  # Of a process that did not end in order.
    lists: list[list[str]] = []
    recorded: list[bool] = []

    def handle(messages: Sequence[Message]) -> None:
        lists.append([message.data.decode() for message in messages])
        in_flight = (tmp_path / "journal" / "in-flight").read_bytes()
        recorded.append(f"0:1:0:-1:{len(lists) - 1}".encode() in in_flight)

    with consuming(
        handle,
        tmp_path,
        handler="operators.pulsarconsumer.app.handlers:accept",
        handler_batch=True,
        batch_max_messages=3,
        journal_folder=tmp_path / "journal",
    ):
        broker.add(b"a", b"b", b"c")
        wait_until(lambda: broker.backlog == 0, "all are handled")

    assert lists == [["a"], ["b"], ["c"]]
    assert all(recorded)


def test_message_that_fails_as_a_copy_of_itself_is_not_acknowledged(
    broker: BrokerModel, tmp_path: Path
) -> None:
    """Another process returns the messages of a list as copies."""
    calls: list[list[bytes]] = []

    def handle(messages: Sequence[Message]) -> None:
        calls.append([message.data for message in messages])
        if failed := [copy.copy(message) for message in messages if message.data == b"bad"]:
            raise PartialFailure(failed)

    values = {"handler": "operators.pulsarconsumer.app.handlers:accept", "batch_max_messages": 2}
    with consuming(handle, tmp_path, handler_batch=True, **values) as worker:
        broker.add(b"good", b"bad")
        wait_until(lambda: worker.handled("retried") == 1, "it fails")
        wait_until(lambda: worker.handled("acknowledged") == 1, "the other one does not")

    assert calls == [[b"good", b"bad"], [b"good"], [b"bad"]]
    assert broker.backlog == 1


class Cancelled(BaseException):
    """An error like those that cancel tasks, which are no exceptions."""


def test_handler_that_raises_what_is_no_exception_has_failed(
    broker: BrokerModel, tmp_path: Path
) -> None:
    calls = itertools.count()

    def handle(_message: Message) -> None:
        if next(calls) == 0:
            raise Cancelled

    with consuming(handle, tmp_path, retry_initial_delay_seconds=0.1) as worker:
        broker.add(b"a")
        wait_until(lambda: broker.backlog == 0, "it is handled again")
        assert worker.worker.failure == ""


_DEAD_LETTERS = {"dead_letter": "Enabled", "retry_max_attempts": 1}


def test_copies_that_the_broker_does_not_store_stop_no_other_message(
    broker: BrokerModel, tmp_path: Path
) -> None:
    broker.stores.clear()
    handler = Blocking()
    with consuming(handler, tmp_path, **_DEAD_LETTERS) as worker:
        for number in range(5):
            broker.add(b"p%d" % number)
            broker.add(b"g%d" % number)
        wait_until(lambda: worker.handled("acknowledged") == 5, "the others are handled")
        wait_until(lambda: worker.value("waiting_copies") == 5, "no copy is stored")
        wait_until(lambda: worker.value("broker_errors_total", operation="dead_letter"), "counted")
        broker.stores.set()
        wait_until(lambda: worker.handled("dead_lettered") == 5, "all are stored")
        wait_until(lambda: broker.backlog == 0, "all are acknowledged")

    assert sorted(broker.copies) == [b"p%d" % number for number in range(5)]
    assert len(handler.calls) == 10
    assert worker.value("waiting_copies") == worker.value("waiting_retries") == 0


def test_threads_that_use_the_client_have_ended_when_the_worker_has(
    broker: BrokerModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread in a call of the client while the interpreter shuts down aborts the process."""
    ended = threading.Event()

    class Reader:
        def read_next(self, _milliseconds: int) -> Any:
            threading.Event().wait(0.3)
            raise pulsar.Timeout("nothing came")

        is_connected = staticmethod(lambda: True)
        has_message_available = staticmethod(lambda: False)
        close = staticmethod(ended.set)

    monkeypatch.setattr(broker, "create_reader", lambda *_, **__: Reader())
    with consuming(Blocking(), tmp_path, **_DEAD_LETTERS) as worker:
        broker.add(b"p0")
        wait_until(lambda: worker.handled("dead_lettered") == 1, "its copy is stored")

    assert ended.is_set()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(("copies", "attempts"))]


def test_message_whose_copy_is_not_stored_keeps_its_order(
    broker: BrokerModel, tmp_path: Path
) -> None:
    broker.stores.clear()
    handler = Blocking()
    values = {"subscription_type": "Exclusive", **_DEAD_LETTERS}
    with consuming(handler, tmp_path, **values) as worker:
        broker.add(b"p0")
        broker.add(b"g0")
        wait_until(lambda: worker.value("broker_errors_total", operation="dead_letter"), "refused")
        assert handler.calls == [b"p0"]
        broker.stores.set()
        wait_until(lambda: broker.backlog == 0, "all are acknowledged")

    assert handler.calls == [b"p0", b"g0"]


def test_message_that_comes_again_while_its_copy_is_not_stored_is_copied_once(
    broker: BrokerModel, tmp_path: Path
) -> None:
    broker.stores.clear()
    handler = Blocking()
    with consuming(handler, tmp_path, **_DEAD_LETTERS) as worker:
        broker.add(b"p0", b"g0")
        wait_until(lambda: worker.value("broker_errors_total", operation="dead_letter"), "refused")
        lose(broker, worker)
        broker.is_back.set()
        wait_until(lambda: len(broker.consumers) == 2, "it is connected again")
        wait_until(lambda: broker.consumers[1].taken == 2, "it came again")
        broker.stores.set()
        wait_until(lambda: broker.backlog == 0, "all are acknowledged")

    assert (handler.calls, broker.copies) == ([b"p0", b"g0"], [b"p0"])


def test_process_that_cannot_store_copies_ends_in_time(broker: BrokerModel, tmp_path: Path) -> None:
    broker.stores.clear()
    worker = RunningWorker(
        build_environment(_SERVER, TOPIC, **_DEAD_LETTERS), Blocking(), tmp_path / "log"
    )
    wait_until(lambda: worker.sources[-1].is_open, "it is subscribed")
    broker.add(b"p0")
    wait_until(lambda: worker.value("broker_errors_total", operation="dead_letter"), "refused")
    worker.stop(3600.0)  # It does not wait for this time.

    assert broker.backlog == 1


def was_handled(worker: RunningWorker, count: int) -> bool:
    return worker.handled("acknowledged") == count


def test_messages_are_handled_again_after_the_cursor_was_moved_back(
    broker: BrokerModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "BROKEN_SECONDS", 60.0)
    handler = Blocking()
    with consuming(handler, tmp_path) as worker:
        broker.add(b"p0")
        for number in range(50):
            broker.add(b"%d" % number)
        for times in (1, 2, 3):
            wait_until(partial(was_handled, worker, 50 * times), "all are handled")
            if times < 3:
                broker.reset()

    assert handler.calls.count(b"p0") == 1
    assert all(handler.calls.count(b"%d" % number) == 3 for number in range(50))


def test_skipped_messages_are_not_handled_any_more(
    broker: BrokerModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redelivery, "ASK_SECONDS", 0.5)
    monkeypatch.setattr(redelivery, "ANSWER_SECONDS", 1.0)
    handler = Blocking()
    values = {"subscription_type": "Exclusive", "retry_initial_delay_seconds": 0.1}
    with consuming(handler, tmp_path, retry_multiplier=1, **values) as worker:
        broker.add(b"p0")
        broker.add(b"later")
        wait_until(lambda: handler.calls.count(b"p0") > 1, "it is tried again")
        broker.skip_all()
        wait_until(lambda: worker.value("waiting_retries") == 0, "nothing waits")
        calls = handler.calls.count(b"p0")
        broker.add(b"new")
        wait_until(lambda: broker.backlog == 0, "the next one is handled")

    assert handler.calls == [b"p0"] * calls + [b"new"]
