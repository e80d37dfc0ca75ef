"""The state of a source, by a consumer that is a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from operators.pulsarconsumer.app.harness import build_environment
from operators.pulsarconsumer.app.schemas import Payloads
from operators.pulsarconsumer.app.settings import load_settings
from operators.pulsarconsumer.app.source import BROKEN_SECONDS, Source

TOPIC = "persistent://public/default/t"


class Consumer:
    """A consumer that is connected as long as a test says."""

    def __init__(self) -> None:
        self.connected = True
        self._consumer = SimpleNamespace(acknowledge=None)

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


def test_expired_source_is_replaced_only_if_it_is_not_connected(
    source: Source, consumer: Consumer
) -> None:
    source.open()
    source.expire()
    assert not source.check(1000.0)
    consumer.connected = False
    assert source.check(1001.0)
