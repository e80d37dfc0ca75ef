"""Producers of copies and outputs, with a client that is a stand-in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from operators.pulsarconsumer.app import connection as connection_module
from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.harness import build_environment, wait_until
from operators.pulsarconsumer.app.settings import load_settings
from slipway_handler import Output, Pause

_TOPIC = "persistent://public/default/t"


class Client:
    """A client whose producers are the functions that a test sets."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.sent: list[tuple[str, bytes]] = []
        self.errors: list[Exception] = []
        self.slow: set[str] = set()
        self.go = threading.Event()
        self.closed = 0

    def create_producer(self, topic: str, **_: object) -> Any:
        self.created.append(topic)
        if topic in self.slow:
            self.go.wait(60)

        def send(data: bytes, **_: object) -> None:
            if self.errors:
                raise self.errors.pop()
            self.sent.append((topic, data))

        return SimpleNamespace(send=send, close=self.close)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    found = Client()
    monkeypatch.setattr(connection_module, "build_client", lambda _: found)
    yield found
    found.go.set()


@pytest.fixture
def connection(client: Client) -> Connection:
    return Connection(load_settings(build_environment("pulsar://nowhere:6650", _TOPIC)))


def output(name: str) -> Output:
    return Output(data=b"x", topic=f"persistent://public/default/{name}")


@pytest.mark.parametrize(
    "error",
    [
        pulsar.AlreadyClosed("its topic was deleted"),
        pulsar.Timeout("the broker has lost it, but the client says that it is connected"),
    ],
)
def test_producer_that_sends_nothing_any_more_is_replaced(
    client: Client, connection: Connection, error: Exception
) -> None:
    connection.publish(output("a"))
    client.errors = [error]
    with pytest.raises(Pause, match=str(error)):
        connection.publish(output("a"))
    connection.publish(output("a"))

    assert len(client.sent) == 2
    assert len(client.created) == 2
    assert client.closed == 1


def test_producer_that_refuses_a_message_is_kept(client: Client, connection: Connection) -> None:
    connection.publish(output("a"))
    client.errors = [pulsar.MessageTooBig("more than the broker takes")]
    with pytest.raises(pulsar.MessageTooBig):
        connection.publish(output("a"))
    connection.publish(output("a"))

    assert len(client.created) == 1


def test_topic_that_cannot_be_reached_does_not_hold_up_the_others(
    client: Client, connection: Connection
) -> None:
    slow = output("slow")
    client.slow = {slow.topic}
    waiting = threading.Thread(target=connection.publish, args=(slow,), daemon=True)
    waiting.start()
    wait_until(lambda: client.created == [slow.topic], "it waits for the broker")
    other = threading.Thread(target=connection.publish, args=(output("b"),), daemon=True)
    other.start()
    wait_until(lambda: client.sent, "the other one is published", 10)
    client.go.set()
    waiting.join(60)

    assert [topic for topic, _ in client.sent] == [output("b").topic, slow.topic]
    assert client.created == [slow.topic, output("b").topic]


def test_nothing_is_sent_and_no_client_is_built_after_the_end(
    client: Client, connection: Connection
) -> None:
    connection.publish(output("a"))
    connection.stop()
    with pytest.raises(Pause, match="stopping"):
        connection.publish(output("a"))
    connection.close()
    with pytest.raises(Pause, match="stopping"):
        connection.publish(output("b"))

    assert len(client.sent) == 1
