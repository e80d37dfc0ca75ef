"""The state of a source, by a consumer that is a stand-in."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from operators.pulsarconsumer.app import source as source_module
from operators.pulsarconsumer.app.harness import build_environment
from operators.pulsarconsumer.app.schemas import Payloads
from operators.pulsarconsumer.app.settings import load_settings
from operators.pulsarconsumer.app.source import (
    BROKEN_SECONDS,
    PROBE_SECONDS,
    Source,
)

TOPIC = "persistent://public/default/t"


class Consumer:
    """A consumer that is connected as long as a test says."""

    def __init__(self) -> None:
        self.connected = True
        self.acknowledge = None
        self.messages: list[object] = []

    def batch_receive(self) -> list[object]:
        return []

    def receive(self, _milliseconds: int) -> object:
        if not self.messages:
            raise pulsar.Timeout("nothing came")
        return self.messages.pop()

    def is_connected(self) -> bool:
        return self.connected

    def close(self) -> None:
        self.connected = False


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def source(consumer: Consumer) -> Source:
    settings = load_settings(build_environment("pulsar://nowhere:6650", TOPIC))
    client = SimpleNamespace(subscribe=lambda *_, **__: consumer)
    connection: Any = SimpleNamespace(client=lambda: client, build_key_reader=lambda: None)
    return Source(settings, connection, Payloads(settings), TOPIC)


def test_lost_connection_is_reported_while_nobody_checks(
    source: Source, consumer: Consumer
) -> None:
    assert source.problem == "not subscribed yet"
    source.open()
    assert source.problem == ""
    consumer.connected = False
    assert source.problem == "not connected to the broker"
    source.close("the app is stopping")
    assert source.problem == "the app is stopping"


def test_consumer_is_replaced_when_the_client_does_not_reconnect(
    source: Source, consumer: Consumer
) -> None:
    source.open()
    assert not source.check(1000.0)
    consumer.connected = False
    assert not source.check(1000.0 + BROKEN_SECONDS)
    assert source.check(1001.0 + BROKEN_SECONDS)


def test_check_keeps_its_result_for_a_caller_that_asks_again(
    source: Source, consumer: Consumer
) -> None:
    source.open()
    assert not source.check(1000.0)
    consumer.connected = False
    assert source.check(1001.0 + BROKEN_SECONDS)
    consumer.connected = True
    assert source.check(1001.0 + BROKEN_SECONDS)
    source.open()
    assert not source.check(1001.0 + BROKEN_SECONDS)


def receive_nothing(source: Source) -> None:
    with pytest.raises(pulsar.Timeout):
        source.receive(many=False)


def test_consumer_that_receives_nothing_is_replaced_once(
    source: Source, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.open()
    receive_nothing(source)
    assert not source.check(1000.0)
    monkeypatch.setattr(source_module, "SILENT_SECONDS", -1.0)
    source.expect_message()
    consumer.connected = False
    receive_nothing(source)
    assert not source.check(1001.0)
    consumer.connected = True
    receive_nothing(source)
    assert source.check(1002.0)
    assert source.problem.startswith("no message since it connected")
    source.open()
    receive_nothing(source)
    assert not source.check(1003.0)
    assert source.problem == ""


def test_consumer_that_has_received_a_message_is_kept(
    source: Source, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SILENT_SECONDS", -1.0)
    source.open()
    consumer.messages = [object()]
    source.receive(many=False)
    receive_nothing(source)
    assert not source.check(1000.0)


class Partitions:
    """A client of a topic with partitions, to some of which it has no access."""

    def __init__(self) -> None:
        self.count, self.missing = 3, {"p1"}
        self.consumer = Consumer()

    def get_topic_partitions(self, _topic: str) -> list[str]:
        return [f"p{number}" for number in range(self.count)]

    def subscribe(self, topics: str | list[str], *_: object, **__: object) -> Consumer:
        wanted = self.get_topic_partitions(TOPIC) if topics == TOPIC else topics
        if self.missing & set([wanted] if isinstance(wanted, str) else wanted):
            raise pulsar.ConsumerBusy("somebody else consumes it")
        # Those of attempts are closed again.
        return Consumer() if isinstance(topics, str) else self.consumer


def partly_open() -> tuple[Source, Partitions]:
    settings = load_settings(build_environment("pulsar://nowhere:6650", TOPIC))
    client = Partitions()
    connection: Any = SimpleNamespace(client=lambda: client, build_key_reader=lambda: None)
    source = Source(settings, connection, Payloads(settings), TOPIC)
    source.open()
    assert source.problem == "no access to p1"
    return source, client


def test_consumer_of_some_partitions_is_replaced_as_well_if_it_does_not_reconnect() -> None:
    source, client = partly_open()
    now = time.monotonic()
    assert not source.check(now + 1)
    client.consumer.connected = False
    assert not source.check(now + 1 + BROKEN_SECONDS)
    assert source.check(now + 2 + BROKEN_SECONDS)


def test_partition_that_is_added_is_consumed_while_another_cannot_be() -> None:
    source, client = partly_open()
    now = time.monotonic()
    assert not source.check(now + 1 + PROBE_SECONDS)
    client.count = 4
    assert not source.check(now + 2 + PROBE_SECONDS)
    assert source.check(now + 3 + 2 * PROBE_SECONDS)
