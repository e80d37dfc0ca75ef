"""What the worker does with messages of a real broker, in every way of failing."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from functools import partial
from pathlib import Path

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider

from libs.common.tracing import Tracing
from operators.pulsarconsumer.app.core import headers
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    build_environment,
    new_topic,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker
from slipway_handler import Message, Reject, RetryLater

FAST = {"retry_initial_delay_seconds": 0.1, "retry_max_delay_seconds": 0.2}


def backlog(broker: Broker, topic: str) -> int:
    stats = broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION)
    return int(stats.get("msgBacklog", -1))


class Recorder:
    """A handler that remembers its messages, and fails for those that a test names."""

    def __init__(self, poison: bytes = b"", error: Exception | None = None) -> None:
        self.poison = poison
        self.error = error or ValueError("no")
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        if self.poison and message.data == self.poison:
            raise self.error

    def has(self, count: int) -> bool:
        return len(self.messages) == count

    def attempts(self, payload: bytes) -> list[int]:
        return [message.attempt for message in self.messages if message.data == payload]


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover", "KeyShared"])
def test_each_message_is_handled_logged_and_acknowledged(
    kind: str, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    recorder = Recorder()
    sent = [b"%d" % number for number in range(50)]
    peer.send(topic, sent, partition_key="k", properties={"a": "b", "token": "hidden"})
    environ = build_environment(pulsar_broker.service_url, topic, subscription_type=kind)
    with running(environ, recorder, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("acknowledged") == 50, "all are acknowledged")

    assert [message.data for message in recorder.messages] == sent
    first = recorder.messages[0]
    assert (first.topic, first.key, first.attempt) == (topic, "k", 1)
    lines = [orjson.loads(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert [line["payload"].encode() for line in lines] == sent
    assert lines[0]["properties"] == {"a": "b", "token": "[redacted]"}
    wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")


def test_line_of_a_message_is_with_the_reader_before_it_is_handled(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    sent = [b"%d" % number for number in range(300)]
    log = tmp_path / "log"
    ahead: list[int] = []

    def handle(message: Message) -> None:
        if int(message.data) % 50 == 49:
            ahead.append(log.read_bytes().count(b"\n") - int(message.data))

    peer.send(topic, sent)
    environ = build_environment(pulsar_broker.service_url, topic)
    with running(environ, handle, log) as worker:
        wait_until(lambda: worker.handled("acknowledged") == 300, "all are acknowledged")

    # At most the messages that wait for the handler, and those that were just received, have lines.
    assert len(ahead) == 6
    assert all(1 <= lines <= 200 for lines in ahead), ahead
    lines = log.read_bytes().splitlines()
    assert [orjson.loads(line)["payload"].encode() for line in lines] == sent


def test_message_can_be_kept_changed_and_sent_to_another_process(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    recorder = Recorder()
    environ = build_environment(pulsar_broker.service_url, topic, log_sample_ratio=0)
    with running(environ, recorder, tmp_path / "log") as worker:
        worker.wait_ready()
        peer.send(topic, [b"x"], partition_key="k", properties={"a": "b"})
        wait_until(lambda: worker.handled("acknowledged") == 1, "it is acknowledged")

    # Its fields are read now, when the connection is gone.
    (message,) = recorder.messages
    sent = pickle.loads(pickle.dumps(message))  # noqa: S301  # Our own.
    assert type(sent) is Message
    assert (sent.data, sent.value, sent.topic, sent.key) == (b"x", b"x", topic, "k")
    assert (sent.properties, sent.attempt) == ({"a": "b"}, 1)
    assert replace(message, key="other").key == "other"
    with pytest.raises(FrozenInstanceError):
        message.key = "other"  # type: ignore[misc]  # That is refused.
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.parametrize("strategy", ["RetryTopic", "NegativeAck"])
def test_poison_is_put_aside_after_its_attempts_and_the_rest_is_handled(
    strategy: str, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    recorder = Recorder(b"poison")
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        retry_strategy=strategy,
        retry_max_attempts=3,
        dead_letter="Enabled",
        **FAST,
    )
    with running(environ, recorder, tmp_path / "log") as worker:
        worker.wait_ready()
        peer.send(topic, [b"poison"], partition_key="k", properties={"mine": "1"})
        peer.send(topic, [b"good"])
        wait_until(lambda: worker.handled("dead_lettered") == 1, "the poison is put aside")
        wait_until(lambda: worker.handled("acknowledged") == 1, "the good one is acknowledged")

    assert recorder.attempts(b"poison") == [1, 2, 3]
    assert recorder.attempts(b"good") == [1]
    # Kept for the subscription that the app made before.
    (dead,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)
    assert (dead.data(), dead.partition_key()) == (b"poison", "k")
    properties = dead.properties()
    assert properties["mine"] == "1"
    assert properties[headers.REAL_TOPIC] == topic
    assert properties[headers.TRIES] == "3"
    assert properties[headers.REASON] == "AttemptsExhausted"
    assert properties[headers.EXCEPTION] == "ValueError: no"
    wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")
    assert backlog(pulsar_broker, f"{topic}-{SUBSCRIPTION}-DLQ") == 1


def test_tries_are_counted_across_restarts_of_consumers(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        retry_strategy="RetryTopic",
        retry_max_attempts=3,
        # Long enough for the consumer to be gone before the next try.
        retry_initial_delay_seconds=1,
        retry_multiplier=1,
        dead_letter="Enabled",
    )
    peer.send(topic, [b"poison"])
    attempts: list[list[int]] = []
    for result in ("retried", "retried", "dead_lettered"):
        recorder = Recorder(b"poison")
        with running(environ, recorder, tmp_path / "log") as worker:
            ended = partial(worker.handled, result)
            wait_until(ended, f"the message is {result}")
        attempts.append(recorder.attempts(b"poison"))

    assert attempts == [[1], [2], [3]]
    assert len(peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)) == 1


def test_counter_of_a_producer_is_not_believed(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    recorder = Recorder()
    environ = build_environment(pulsar_broker.service_url, topic, dead_letter="Enabled")
    peer.send(topic, [b"x"], properties={headers.TRIES: "99", headers.REAL_TOPIC: "other"})
    with running(environ, recorder, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("acknowledged") == 1, "it is acknowledged")

    assert (recorder.messages[0].attempt, recorder.messages[0].topic) == (1, topic)


def test_rejected_message_is_put_aside_at_once(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    recorder = Recorder(b"bad", Reject("password=hunter2 is wrong"))
    environ = build_environment(pulsar_broker.service_url, topic, dead_letter="Enabled")
    peer.send(topic, [b"bad"])
    with running(environ, recorder, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("dead_lettered") == 1, "it is put aside")

    assert recorder.attempts(b"bad") == [1]
    (dead,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)
    assert dead.properties()[headers.REASON] == "Rejected"
    assert "hunter2" not in dead.properties()[headers.EXCEPTION]


def test_failing_message_is_never_dropped_without_a_dead_letter_topic(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    recorder = Recorder(b"bad", RetryLater(0.05))
    environ = build_environment(
        pulsar_broker.service_url, topic, retry_strategy="RetryTopic", retry_max_attempts=2
    )
    peer.send(topic, [b"bad"])
    with running(environ, recorder, tmp_path / "log") as worker:
        wait_until(lambda: len(recorder.messages) >= 5, "it is tried again and again")
        recorder.poison = b""
        wait_until(lambda: worker.handled("acknowledged") == 1, "it is handled at last")


def test_message_is_kept_while_its_copy_cannot_be_stored(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    recorder = Recorder(b"bad", Reject("no"))
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        dead_letter="Enabled",
        dead_letter_topic="persistent://nobody/has/this",
    )
    peer.send(topic, [b"bad"])
    with running(environ, recorder, tmp_path / "log") as worker:
        wait_until(
            lambda: worker.value("broker_errors_total", operation="dead_letter") >= 2,
            "it was tried again",
        )
        assert worker.handled("dead_lettered") == 0

    assert backlog(pulsar_broker, topic) == 1


def test_list_of_messages_is_handled_at_a_time(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    lists: list[list[bytes]] = []

    def handle(messages: Sequence[Message]) -> None:
        lists.append([message.data for message in messages])

    peer.send(topic, [b"%d" % number for number in range(30)])
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        batch_max_messages=10,
        handler_batch=True,
        handler="operators.pulsarconsumer.app.handlers:accept",
    )
    with running(environ, handle, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("acknowledged") == 30, "all are acknowledged")

    assert max(map(len, lists)) > 1
    assert [payload for one in lists for payload in one] == [b"%d" % n for n in range(30)]


def test_messages_of_a_key_stay_in_order_when_several_are_handled_at_a_time(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    lock = threading.Lock()
    active, most = 0, 0
    seen: dict[str, list[int]] = {}
    gate = threading.Barrier(2, timeout=10)

    def handle(message: Message) -> None:
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
            seen.setdefault(message.key, []).append(int(message.data))
        if message.data == b"0":
            gate.wait()  # Both keys are handled concurrently, or this fails.
        with lock:
            active -= 1

    for number in range(20):
        for key in ("a", "c"):
            peer.send(topic, [b"%d" % number], partition_key=key)
    environ = build_environment(
        pulsar_broker.service_url, topic, subscription_type="KeyShared", max_in_flight=8
    )
    with running(environ, handle, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("acknowledged") == 40, "all are acknowledged")

    assert seen == {"a": list(range(20)), "c": list(range(20))}
    assert most >= 2


def test_topics_of_a_pattern_and_of_a_list_are_consumed(
    pulsar_broker: Broker, peer: Peer, tmp_path: Path
) -> None:
    one, two = new_topic(), new_topic()
    for topic in (one, two):
        peer.send(topic, [topic.encode()])
    pattern = f"persistent://public/default/({one[-10:]}|t-{one[-10:]}|t-{two[-10:]})"
    for name, value in (("topics", f"{one},{two}"), ("topic_pattern", pattern)):
        recorder = Recorder()
        environ = build_environment(pulsar_broker.service_url, "", **{name: value})
        environ["PULSAR_CONSUMER_SUBSCRIPTION_NAME"] = name
        with running(environ, recorder, tmp_path / "log"):
            wait_until(partial(recorder.has, 2), "both are read")
        assert {message.topic for message in recorder.messages} == {one, two}


def test_broker_is_found_by_its_http_service(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    recorder = Recorder()
    peer.send(topic, [b"x"])
    environ = build_environment(pulsar_broker.admin_url, topic)
    with running(environ, recorder, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("acknowledged") == 1, "it is acknowledged")

    assert [message.data for message in recorder.messages] == [b"x"]


def test_copies_stay_in_the_trace_of_the_message(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    peer.send(topic, [b"bad"], properties={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    environ = build_environment(pulsar_broker.service_url, topic, dead_letter="Enabled")
    recorder = Recorder(b"bad", Reject("no"))
    telemetry = Tracing(TracerProvider())
    with running(environ, recorder, tmp_path / "log", telemetry) as worker:
        wait_until(lambda: worker.handled("dead_lettered") == 1, "it is put aside")

    (dead,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)
    parent = dead.properties()["traceparent"]
    assert parent.split("-")[1] == trace
    assert "b7ad6b7169203331" not in parent
