"""Messages that the broker sends again because it crashed and forgot their acknowledgments."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import pulsar
import pytest

from operators.pulsarconsumer.app import redelivery, source
from operators.pulsarconsumer.app.core.headers import DELAY
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    RunningWorker,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.received import RawMessage, render_identity
from operators.pulsarconsumer.app.receiver import MessageReceiver
from operators.pulsarconsumer.app.source import Source
from operators.pulsarconsumer.testing.broker import Broker
from slipway_handler import Message

_SECONDS = 10.0
"""Least time in which redeliveries are expected.

A broker that has just started on a busy machine may take seconds for the first of them, while the
queue of the consumer is empty.
"""


_BUSY = ("slow", "poison", "slow-0")
"""What two handlers at a time begin with."""


class Silent(MessageReceiver):
    """A receiver over a connection that brings nothing until it is released."""

    go = threading.Event()

    def receive(self, *, many: bool = True) -> Sequence[RawMessage]:
        if not self.go.wait(0.2):
            raise pulsar.Timeout("nothing came")
        return super().receive(many=many)


class Blocking:
    """A handler that fails for poison, and blocks for others until it is released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls: list[str] = []

    def __call__(self, message: Message) -> None:
        payload = message.data.decode()
        self.calls.append(payload)
        if payload == "poison":
            raise ValueError(payload)
        if payload.startswith("slow"):
            self.go.wait(120)


@pytest.fixture
def handler() -> Iterator[Blocking]:
    handler = Blocking()
    yield handler
    handler.go.set()


@pytest.fixture(autouse=True)
def short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "REDELIVERY_SECONDS", _SECONDS)


def backlog(broker: Broker, topic: str) -> int:
    try:
        stats = broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION)
    except HTTPError:
        return -1  # The topic is not loaded yet.
    return int(stats.get("msgBacklog", -1))


def crash(
    broker: Broker,
    topic: str,
    sent: list[str],
    handler: Blocking,
    folder: Path,
    restart: Callable[[RunningWorker], None],
) -> None:
    """Kill a broker that has forgotten the acknowledgment of poison when it is back.

    A message before the poison is not acknowledged, so the broker keeps in memory alone that the
    poison was. It is only tried once.

    Args:
        broker: What is killed.
        topic: It holds the messages already.
        sent: Their payloads: one slow, the poison, and others.
        handler: Handles two messages at a time.
        folder: Where the log is.
        restart: Called while the broker is dead; starts it again.
    """
    environ = build_environment(
        broker.service_url,
        topic,
        subscription_type="KeyShared",
        receiver_queue_size=10,
        max_in_flight=2,
        retry_max_attempts=1,
        dead_letter="Enabled",
        # A copy that is not stored in time waits until a handler is free, and none will be.
        operation_timeout_seconds=60,
    )
    with running(environ, handler, folder / "log") as consumer:
        wait_until(lambda: consumer.handled("dead_lettered") == 1, "the poison is put aside")
        wait_until(
            lambda: consumer.value("messages_received_total", source="topic") > len(_BUSY),
            "another one waits for a handler",
        )
        broker.kill()
        wait_until(lambda: not consumer.sources[0].is_connected, "the loss is seen")
        restart(consumer)
        handler.go.set()
        wait_until(lambda: backlog(broker, topic) == 0, "nothing is left")

    assert Counter(handler.calls) == dict.fromkeys(sent, 1)
    wait_until(lambda: backlog(broker, f"{topic}-{SUBSCRIPTION}-DLQ") >= 1, "it is loaded")
    assert backlog(broker, f"{topic}-{SUBSCRIPTION}-DLQ") == 1


def send(broker: Broker, topic: str, others: int) -> list[str]:
    peer = Peer(broker.service_url)
    keys = {"slow": "a", "poison": "b"}
    sent = ["slow", "poison", *(f"slow-{number}" for number in range(others))]
    for payload in sent:
        peer.send(topic, [payload.encode()], partition_key=keys.get(payload, payload))
    peer.close()
    return sent


def restart_and_outwait(broker: Broker, consumer: RunningWorker) -> None:
    """Start a broker again, and wait for longer than redeliveries are expected."""
    broker.start()
    wait_until(lambda: consumer.sources[0].is_connected, "it is connected again")
    back = time.monotonic()
    wait_until(lambda: time.monotonic() > back + _SECONDS + 1, "the time is over")


def test_poison_that_waits_in_the_queue_while_handlers_are_busy_is_not_tried_again(
    pulsar_broker: Broker, topic: str, handler: Blocking, tmp_path: Path
) -> None:
    # More than wait in memory and in the queue of the client: the thread of the topic waits.
    sent = send(pulsar_broker, topic, 130)

    restart = partial(restart_and_outwait, pulsar_broker)
    crash(pulsar_broker, topic, sent, handler, tmp_path, restart)


def test_broker_that_stalls_between_redeliveries_brings_each_message_once(
    pulsar_broker: Broker, topic: str, handler: Blocking, tmp_path: Path
) -> None:
    """The queue is empty for a moment after the first redeliveries."""
    sent = send(pulsar_broker, topic, 130)

    def restart(consumer: RunningWorker) -> None:
        restart_and_outwait(pulsar_broker, consumer)
        os.kill(pulsar_broker.pid, signal.SIGSTOP)
        try:
            handler.go.set()
            wait_until(
                lambda: consumer.handled("acknowledged") >= 5, "those that it has are handled"
            )
            stalled = time.monotonic()
            wait_until(lambda: time.monotonic() > stalled + 1, "a second is over")
        finally:
            os.kill(pulsar_broker.pid, signal.SIGCONT)

    crash(pulsar_broker, topic, sent, handler, tmp_path, restart)


def test_broker_that_is_away_for_long_brings_each_message_once(
    pulsar_broker: Broker,
    topic: str,
    handler: Blocking,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = send(pulsar_broker, topic, 6)
    monkeypatch.setattr(source, "BROKEN_SECONDS", 0.0)

    def restart(consumer: RunningWorker) -> None:
        wait_until(lambda: not consumer.sources[0].is_open, "it is closed")
        monkeypatch.setattr(source, "BROKEN_SECONDS", 60.0)
        monkeypatch.setattr(source, "MessageReceiver", Silent)
        # A broker that has just started may load the topic, and be silent, for long.
        restart_and_outwait(pulsar_broker, consumer)
        Silent.go.set()

    Silent.go.clear()
    crash(pulsar_broker, topic, sent, handler, tmp_path, restart)


def test_handler_that_hangs_does_not_keep_a_lost_connection_from_being_replaced(
    pulsar_broker: Broker,
    topic: str,
    handler: Blocking,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(pulsar_broker, topic, 0)
    monkeypatch.setattr(source, "BROKEN_SECONDS", 0.0)
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        max_in_flight=2,
        retry_max_attempts=1,
        dead_letter="Enabled",
    )
    with running(environ, handler, tmp_path / "log") as consumer:
        wait_until(lambda: handler.calls == ["slow", "poison"], "one hangs")
        wait_until(lambda: consumer.handled("dead_lettered") == 1, "the other is settled")
        pulsar_broker.kill()
        wait_until(lambda: not consumer.sources[0].is_open, "it is closed")
        monkeypatch.setattr(source, "BROKEN_SECONDS", 60.0)
        pulsar_broker.start()
        peer = Peer(pulsar_broker.service_url)
        peer.send(topic, [b"after"])
        peer.close()
        wait_until(lambda: "after" in handler.calls, "it consumes again")
        assert consumer.worker.check_ready() is None
        handler.go.set()
        wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")

    assert Counter(handler.calls) == {"slow": 1, "poison": 1, "after": 1}


def test_copy_that_was_stored_twice_is_tried_once(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    calls: list[int] = []

    def fail(message: Message) -> None:
        calls.append(message.attempt)
        raise ValueError

    peer.send(topic, [b"x"])
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        retry_strategy="RetryTopic",
        retry_initial_delay_seconds=3600,
        retry_max_delay_seconds=3600,
        retry_max_attempts=2,
        dead_letter="Enabled",
    )
    retry_topic = f"{topic}-{SUBSCRIPTION}-RETRY"
    with running(environ, fail, tmp_path / "log") as consumer:
        wait_until(lambda: consumer.handled("retried") == 1, "it is in the retry topic")
        (copy,) = peer.read(retry_topic, 1)
        # As a client does that did not receive the receipt, but without the delay.
        properties = {**copy.properties(), DELAY: "0"}
        for _ in range(3):
            peer.send(retry_topic, [copy.data()], properties=properties)
        wait_until(lambda: consumer.handled("dead_lettered") == 1, "it has no attempts left")
        # The delayed one stays.
        wait_until(lambda: backlog(pulsar_broker, retry_topic) == 1, "all were received")

    assert calls == [1, 2]


def test_poison_that_was_copied_by_a_process_that_was_killed_is_not_tried_again(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """The broker does not have an acknowledgment of the last moment."""
    peer.send(topic, [b"x"])
    (sent,) = peer.read(topic, 1)
    Journal(str(tmp_path)).remember_copied(render_identity(sent._message))
    calls: list[bytes] = []
    environ = build_environment(pulsar_broker.service_url, topic, journal_folder=str(tmp_path))
    with running(environ, lambda message: calls.append(message.data), tmp_path / "log") as consumer:
        wait_until(lambda: backlog(pulsar_broker, topic) == 0, "it is acknowledged")
        peer.send(topic, [b"y"])
        wait_until(lambda: consumer.handled("acknowledged") == 1, "others are handled")

    assert calls == [b"y"]


def test_message_in_the_handler_is_not_handed_over_because_another_one_must_be_confirmed(
    pulsar_broker: Broker,
    peer: Peer,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redelivery, "ASK_SECONDS", 1.0)
    monkeypatch.setattr(redelivery, "BUSY_SECONDS", 600.0)
    names = [*(f"slow-{number}" for number in range(8)), "poison"]
    for each in names:
        peer.send(topic, [each.encode()], partition_key=each)
    done: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    go = threading.Event()

    def handle(message: Message) -> None:
        payload = message.data.decode()
        calls[payload] += 1
        if payload == "poison" and not go.is_set():
            raise ValueError(payload)
        go.wait(120)
        done[payload] += 1

    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        subscription_type="KeyShared",
        max_in_flight=16,
        retry_initial_delay_seconds=0.1,
        retry_max_delay_seconds=0.1,
    )
    with running(environ, handle, tmp_path / "a") as first:
        redeliveries = first.worker._memory.redeliveries
        old: list[bool] = []
        must_ask = redeliveries.must_ask

        def note(asked: Source) -> bool:
            messages = list(redeliveries._messages.values())
            old.append(any(redeliveries.is_old(each) for each in messages))
            return must_ask(asked)

        wait_until(lambda: set(calls) == set(names), "all are begun")
        with running(environ, handle, tmp_path / "b") as second:
            second.wait_ready()
            monkeypatch.setattr(redeliveries, "must_ask", note)
            wait_until(lambda: sum(old) > 20, "a message must be confirmed")
            try:
                assert {each: calls[each] for each in names[:-1]} == dict.fromkeys(names[:-1], 1)
            finally:
                go.set()
            wait_until(lambda: backlog(pulsar_broker, topic) == 0, "all are done")
    assert done == dict.fromkeys(names, 1)
