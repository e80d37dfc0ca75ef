"""Messages that fail together, in batches and in order: attempts are counted once, order is kept.

Producers of Java and Go send batches by default, and a broker redelivers whole batches, or all
messages that are not acknowledged. None of that may show in how often a message is handled.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pulsar
import pytest

from operators.pulsarconsumer.app import source as source_module
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.app.source import Source
from operators.pulsarconsumer.testing.broker import Broker
from slipway_handler import Message, PartialFailure

FAST = {
    "retry_initial_delay_seconds": 0.2,
    "retry_max_delay_seconds": 0.4,
    "retry_max_attempts": 3,
    "dead_letter": "Enabled",
}
ACCEPT = "operators.pulsarconsumer.app.handlers:accept"


class Poisoned:
    """A handler that fails for payloads that begin with `p`, until a test changes that."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: list[tuple[str, int]] = []
        self.done: list[str] = []
        self.fails = True

    def __call__(self, message: Message) -> None:
        payload = message.data.decode()
        with self.lock:
            self.calls.append((payload, message.attempt))
        if self.fails and payload.startswith("p"):
            raise ValueError("poison")
        with self.lock:
            self.done.append(payload)

    def times(self) -> Counter[str]:
        return Counter(payload for payload, _ in self.calls)

    def attempts(self, payload: str) -> list[int]:
        return [attempt for other, attempt in self.calls if other == payload]


def backlog(broker: Broker, topic: str) -> int:
    stats = broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION)
    return int(stats.get("msgBacklog", -1))


def send_batch(peer: Peer, topic: str, payloads: Sequence[str], **options: object) -> None:
    """Send messages in one entry."""
    producer = peer.client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=500
    )
    for payload in payloads:
        producer.send_async(payload.encode(), lambda *_: None, **options)
    producer.flush()
    producer.close()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", ["Shared", "Exclusive", "Failover", "KeyShared"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_messages_that_fail_together_have_their_attempts_and_others_are_handled_once(
    kind: str,
    batched: bool,
    lanes: int,
    pulsar_broker: Broker,
    peer: Peer,
    topic: str,
    tmp_path: Path,
) -> None:
    handler = Poisoned()
    sent = [f"p{n}" if n % 10 == 3 else f"g{n}" for n in range(50)]
    environ = build_environment(
        pulsar_broker.service_url, topic, subscription_type=kind, max_in_flight=lanes, **FAST
    )
    if batched:
        send_batch(peer, topic, sent, partition_key="k")
    else:
        peer.send(topic, [payload.encode() for payload in sent], partition_key="k")
    with running(environ, handler, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("dead_lettered") == 5, "the poison is put aside", 40)
        wait_until(lambda: worker.handled("acknowledged") == 45, "the others are handled")

    good = {payload: 1 for payload in sent if payload[0] == "g"}
    poison = {payload: 3 for payload in sent if payload[0] == "p"}
    assert handler.times() == good | poison
    assert handler.attempts("p3") == [1, 2, 3]
    wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")
    assert backlog(pulsar_broker, f"{topic}-{SUBSCRIPTION}-DLQ") == 5
    if kind != "Shared":
        assert handler.done == [payload for payload in sent if payload[0] == "g"]
        order = list(dict.fromkeys(payload for payload, _ in handler.calls))
        assert order == sent, "none is begun before those that were sent before it ended"


class Speechless(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [ValueError("half of a character: \ud800"), Speechless()])
def test_message_whose_error_has_a_text_that_cannot_be_sent_is_moved_like_others(
    error: Exception, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    def handle(message: Message) -> None:
        if message.data != b"good":
            raise error

    peer.send(topic, [b"p"] * 20 + [b"good"])
    environ = build_environment(
        pulsar_broker.service_url, topic, retry_max_attempts=1, dead_letter="Enabled"
    )
    with running(environ, handle, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("dead_lettered") == 20, "all are dead letters")
        wait_until(lambda: worker.handled("acknowledged") == 1, "others are handled")
    (letter,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)
    assert letter.properties()["EXCEPTION"].startswith(type(error).__name__)


def test_outage_behind_the_handler_that_the_attempts_outlast_moves_nothing(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    handler = Poisoned()
    sent = [f"p{n}" for n in range(20)]
    send_batch(peer, topic, sent)
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        subscription_type="Failover",
        dead_letter="Enabled",
        retry_initial_delay_seconds=0.5,
    )
    with running(environ, handler, tmp_path / "log") as worker:
        wait_until(lambda: len(handler.calls) == 3, "three attempts failed")
        handler.fails = False
        wait_until(lambda: worker.handled("acknowledged") == 20, "all are handled")
        assert worker.handled("dead_lettered") == 0

    assert handler.done == sent
    assert len(handler.calls) == 23


def test_key_that_fails_does_not_stop_other_keys(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    handler = Poisoned()
    for number in range(3):
        peer.send(topic, [b"p%d" % number], partition_key="bad")
        peer.send(topic, [b"g%d" % number], partition_key="good")
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        subscription_type="KeyShared",
        retry_initial_delay_seconds=1,
    )
    with running(environ, handler, tmp_path / "log"):
        wait_until(lambda: handler.done == ["g0", "g1", "g2"], "the good key is handled")
        assert set(handler.times()) == {"p0", "g0", "g1", "g2"}
        handler.fails = False
        wait_until(lambda: len(handler.done) == 6, "the other key is handled")

    assert handler.done[3:] == ["p0", "p1", "p2"]


def test_topic_that_is_unloaded_brings_nothing_twice(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """The whole batch comes again while one message of it waits for its next attempt."""
    handler = Poisoned()
    sent = ["g0", "p1", "g2", "p3", "g4"]
    send_batch(peer, topic, sent)
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        retry_initial_delay_seconds=6,
        retry_multiplier=1,
        retry_max_attempts=2,
        dead_letter="Enabled",
    )
    with running(environ, handler, tmp_path / "log") as worker:
        wait_until(lambda: len(handler.calls) == 5, "all were tried")
        pulsar_broker.request("PUT", f"persistent/public/default/{topic.rpartition('/')[2]}/unload")
        peer.send(topic, [b"later"])
        wait_until(lambda: "later" in handler.done, "messages come again")
        wait_until(lambda: worker.handled("dead_lettered") == 2, "the poison is put aside")

    assert handler.times() == {"g0": 1, "g2": 1, "g4": 1, "p1": 2, "p3": 2, "later": 1}
    assert handler.attempts("p1") == [1, 2]
    wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")


def test_ack_timeout_does_not_add_attempts(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    handler = Poisoned()
    send_batch(peer, topic, ["g0", "p1", "g2"])
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        ack_timeout_seconds=10,
        retry_initial_delay_seconds=14,
        retry_max_delay_seconds=14,
        retry_max_attempts=2,
        dead_letter="Enabled",
    )
    with running(environ, handler, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("dead_lettered") == 1, "the poison is put aside", 40)

    assert handler.times() == {"g0": 1, "p1": 2, "g2": 1}


def test_memory_for_messages_that_fail_is_bounded(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    handler = Poisoned()
    sent = [f"p{n}" for n in range(400)]
    peer.send(topic, [payload.encode() for payload in sent])
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        held_messages=20,
        receiver_queue_size=10,
        retry_initial_delay_seconds=2,
        retry_multiplier=1,
    )
    with running(environ, handler, tmp_path / "log") as worker:
        wait_until(lambda: len(handler.calls) > 60, "they are tried again")
        # Messages that were received before the bound was reached are held as well.
        assert worker.value("waiting_retries") <= 130
        # A message that the handler has at this moment does not count as held.
        wait_until(lambda: worker.value("waiting_retries") >= 20, "as many as the bound wait")
        assert len(handler.times()) <= 130
        handler.fails = False
        wait_until(lambda: worker.handled("acknowledged") == 400, "all are handled")

    assert sorted(handler.done) == sorted(sent)


@pytest.mark.parametrize("kind", ["Shared", "Failover"])
@pytest.mark.parametrize("named", [True, False])
def test_poison_in_a_list_leaves_its_neighbors_alone(
    kind: str, named: bool, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    lists: list[list[str]] = []

    def handle(messages: Sequence[Message]) -> None:
        lists.append([message.data.decode() for message in messages])
        failed = [message for message in messages if message.data.startswith(b"p")]
        if failed:
            raise PartialFailure(failed) if named else ValueError("poison")

    poison = ["p7", "p8", "p12"] if named else ["p7"]
    sent = [f"p{n}" if f"p{n}" in poison else f"g{n}" for n in range(20)]
    send_batch(peer, topic, sent)
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        subscription_type=kind,
        batch_max_messages=20,
        handler_batch=True,
        handler=ACCEPT,
        **FAST,
    )
    with running(environ, handle, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("dead_lettered") == len(poison), "the poison is kept")
        good = len(sent) - len(poison)
        wait_until(lambda: worker.handled("acknowledged") == good, "the others are acknowledged")

    dead = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", len(poison))
    assert {message.data().decode() for message in dead} == set(poison)
    times = Counter(payload for one in lists for payload in one)
    # By name it was tried three times; otherwise a fourth time in the list of all.
    assert {times[payload] for payload in poison} == {3 if named else 4}
    assert all(times[payload] <= (1 if named else 2) for payload in sent if payload[0] == "g")


@pytest.fixture
def plain_namespace(pulsar_broker: Broker) -> str:
    """Create a namespace in which the broker creates no topics by itself."""
    name = f"public/n-{uuid.uuid4().hex[:8]}"
    pulsar_broker.request("PUT", f"namespaces/{name}")
    policy = {"allowAutoTopicCreation": False}
    pulsar_broker.request("POST", f"namespaces/{name}/autoTopicCreation", policy)
    return name


def test_topic_that_is_deleted_does_not_stop_the_others(
    pulsar_broker: Broker,
    peer: Peer,
    plain_namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = (f"persistent://{plain_namespace}/{name}" for name in ("one", "two"))
    for topic in (one, two):
        pulsar_broker.request("PUT", topic.replace("://", "/"))
    handler = Poisoned()
    environ = build_environment(pulsar_broker.service_url, "", topics=f"{one},{two}")
    with running(environ, handler, tmp_path / "log") as worker:
        worker.wait_ready()
        wait_until(lambda: all(each.is_connected for each in worker.sources), "both are")
        path = two.replace("://", "/")
        pulsar_broker.request("DELETE", f"{path}?force=true")
        peer.send(one, [b"g0"])
        wait_until(lambda: handler.done == ["g0"], "the other is consumed")
        wait_until(lambda: not worker.sources[1].is_connected, "the loss is seen")
        assert worker.worker.check_ready() is None
        assert worker.sources[1].problem == "not connected to the broker"
        monkeypatch.setattr(source_module, "BROKEN_SECONDS", 0.0)
        wait_until(lambda: "TopicNotFound" in worker.sources[1].problem, "it reports it")
        peer.send(one, [b"g1"])
        wait_until(lambda: handler.done == ["g0", "g1"], "the other still is")
        pulsar_broker.request("PUT", path)
        peer.send(two, [b"g2"])
        wait_until(lambda: worker.sources[1].is_connected, "it is back by itself", 40)
        peer.send(two, [b"g3"])
        wait_until(lambda: "g3" in handler.done, "it is consumed again")


def test_topic_that_is_missing_does_not_interrupt_the_subscription_to_another(
    pulsar_broker: Broker,
    peer: Peer,
    plain_namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first refusal comes while the client subscribes to the other topic."""
    topic, missing = (f"persistent://{plain_namespace}/{name}" for name in ("one", "missing"))
    pulsar_broker.request("PUT", topic.replace("://", "/"))
    refused: list[str] = []
    close = Source.close

    def note(source: Source, problem: str = "closed") -> None:
        if problem.startswith("not subscribed"):
            refused.append(source.name)
        close(source, problem)

    monkeypatch.setattr(Source, "close", note)
    environ = build_environment(pulsar_broker.service_url, "", topics=f"{missing},{topic}")
    with running(environ, Poisoned(), tmp_path / "log") as worker:
        worker.wait_ready()
        wait_until(lambda: missing in refused, "the other is refused")

    assert topic not in refused


def test_copy_is_stored_as_soon_as_the_broker_can_store_it(
    pulsar_broker: Broker, peer: Peer, plain_namespace: str, tmp_path: Path
) -> None:
    topic, retry_topic = (f"persistent://{plain_namespace}/{name}" for name in ("one", "again"))
    pulsar_broker.request("PUT", topic.replace("://", "/"))
    handler = Poisoned()
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        retry_strategy="RetryTopic",
        retry_topic=retry_topic,
        retry_initial_delay_seconds=3600,
        retry_max_delay_seconds=3600,
    )
    peer.send(topic, [b"p0"])
    with running(environ, handler, tmp_path / "log") as worker:
        wait_until(lambda: worker.value("broker_errors_total", operation="retry"), "it is refused")
        pulsar_broker.request("PUT", retry_topic.replace("://", "/"))
        wait_until(lambda: worker.handled("retried") == 1, "it is stored")

    assert handler.attempts("p0") == [1]


def test_partition_that_cannot_be_subscribed_to_does_not_stop_the_others(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"persistent/public/default/{topic.rpartition('/')[2]}"
    pulsar_broker.request("PUT", f"{path}/partitions", 3)
    missing = f"{topic}-partition-1"
    # Somebody else has the subscription of one partition for themselves.
    other = peer.client.subscribe(missing, SUBSCRIPTION)
    handler = Poisoned()
    environ = build_environment(pulsar_broker.service_url, topic)
    with running(environ, handler, tmp_path / "log") as worker:
        worker.wait_ready()
        assert worker.sources[0].problem == f"no access to {missing}"
        for number in range(3):
            peer.send(f"{topic}-partition-{number}", [b"g%d" % number])
        wait_until(lambda: sorted(handler.done) == ["g0", "g2"], "the others are consumed")
        other.close()
        monkeypatch.setattr(source_module, "PROBE_SECONDS", 0.0)
        wait_until(lambda: "g1" in handler.done, "it is consumed as soon as it can be", 40)
        assert worker.sources[0].problem == ""


def test_message_whose_key_and_properties_are_not_text_is_handled_and_copied(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """Clients in Go and C++ send such keys; the client does not return them."""
    producer = peer.client.create_producer(topic)
    for payload in (b"g0", b"p1"):
        built = pulsar._pulsar.MessageBuilder().content(payload)
        producer._producer.send(built.partition_key(b"\xff").property("a", b"\xfe").build())
    producer.close()
    handler = Poisoned()
    environ = build_environment(
        pulsar_broker.service_url, topic, subscription_type="KeyShared", max_in_flight=2, **FAST
    )
    with running(environ, handler, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("dead_lettered") == 1, "the poison is put aside")
        wait_until(lambda: worker.handled("acknowledged") == 1, "the other one is handled")

    assert handler.done == ["g0"]
