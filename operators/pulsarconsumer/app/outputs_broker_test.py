"""What a handler returns is published, a pause counts no attempt, dead letters are sent back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker
from slipway_handler import Message, Output, Pause

ACCEPT = "operators.pulsarconsumer.app.handlers:accept"


def backlog(broker: Broker, topic: str, subscription: str = SUBSCRIPTION) -> int:
    stats = broker.subscription(topic.rpartition("/")[2], subscription)
    return int(stats.get("msgBacklog", -1))


def test_returned_messages_are_published_before_the_message_is_acknowledged(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    def handle(message: Message) -> object:
        text = message.data.decode()
        match text:
            case "nothing":
                return None
            case "several":
                return [b"one", Output("two", key="k", properties={"a": "b"}, event_time=5)]
            case _:
                return {"not": "publishable"}

    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        handler=ACCEPT,
        output_topic=f"{topic}-out",
        dead_letter="Enabled",
        retry_max_attempts=1,
    )
    with running(environ, handle, tmp_path / "log") as worker:
        peer.send(topic, [b"nothing", b"wrong", b"several"])
        wait_until(lambda: worker.handled("acknowledged") == 2, "two are handled")
        wait_until(lambda: worker.handled("dead_lettered") == 1, "the wrong one is put aside")

    one, two = peer.read(f"{topic}-out", 2)
    assert (one.data(), two.data()) == (b"one", b"two")
    assert (two.partition_key(), two.properties()) == ("k", {"a": "b"})
    assert two.event_timestamp() == 5


def test_broker_that_does_not_store_the_output_costs_no_attempt(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """A topic that is terminated takes no messages."""
    out = f"{topic}-out"
    peer.send(out, [b"first"])
    pulsar_broker.request("POST", f"persistent/public/default/{out.rpartition('/')[2]}/terminate")
    attempts: list[int] = []

    def handle(message: Message) -> bytes:
        attempts.append(message.attempt)
        return message.data

    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        handler=ACCEPT,
        output_topic=out,
        dead_letter="Enabled",
        retry_max_attempts=2,
    )
    with running(environ, handle, tmp_path / "log") as worker:
        peer.send(topic, [b"held"])
        wait_until(lambda: len(attempts) >= 3, "it is tried again")
        assert worker.handled("dead_lettered") == worker.handled("acknowledged") == 0
    assert set(attempts) == {1}
    wait_until(lambda: backlog(pulsar_broker, topic) == 1, "the broker has it")


class Outage:
    """A handler that fails until what it depends on is available."""

    SECONDS = 0.5

    def __init__(self) -> None:
        self.available = threading.Event()
        self.lock = threading.Lock()
        self.refused: list[float] = []
        self.done: list[tuple[str, int]] = []

    def __call__(self, argument: Message | Sequence[Message]) -> None:
        messages = [argument] if isinstance(argument, Message) else argument
        if not self.available.is_set():
            self.refused.append(time.monotonic())
            raise Pause(self.SECONDS, "the database is down")
        with self.lock:
            self.done += [(message.data.decode(), message.attempt) for message in messages]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("kind", "strategy"),
    [("Shared", "RetryTopic"), ("Exclusive", "NegativeAck"), ("KeyShared", "NegativeAck")],
)
def test_pause_calls_no_handler_and_costs_no_attempt(
    kind: str,
    strategy: str,
    listed: bool,
    pulsar_broker: Broker,
    peer: Peer,
    topic: str,
    tmp_path: Path,
) -> None:
    outage, sent = Outage(), [str(number) for number in range(30)]
    lists = {"handler_batch": True, "batch_max_messages": 10} if listed else {}
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        handler=ACCEPT,
        subscription_type=kind,
        retry_strategy=strategy,
        retry_max_attempts=2,
        dead_letter="Enabled",
        **lists,
    )
    with running(environ, outage, tmp_path / "log") as worker:
        peer.send(topic, [text.encode() for text in sent], partition_key="k")
        wait_until(lambda: len(outage.refused) >= 4, "it is tried again")
        outage.available.set()
        wait_until(lambda: len(outage.done) == len(sent), "all are handled")
        wait_until(lambda: backlog(pulsar_broker, topic) == 0, "all are acknowledged")
        assert worker.handled("dead_lettered") == worker.handled("retried") == 0

    assert sorted(outage.done) == sorted((text, 1) for text in sent)
    if kind != "Shared":
        assert [text for text, _ in outage.done] == sent
    gaps = [after - before for before, after in pairwise(outage.refused)]
    assert min(gaps) >= Outage.SECONDS


def fill_dead_letters(
    environ: dict[str, str], peer: Peer, topic: str, sent: Sequence[str], log: Path
) -> None:
    def refuse(_message: Message) -> None:
        raise ValueError("broken")

    with running(environ, refuse, log) as worker:
        peer.send(topic, [text.encode() for text in sent], partition_key="k")
        wait_until(lambda: worker.handled("dead_lettered") == len(sent), "all are put aside")


def start_redrive(environ: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", "operators.pulsarconsumer.app.redrive", *arguments],
        env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": path, **environ},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("strategy", ["RetryTopic", "NegativeAck"])
def test_dead_letters_are_sent_back_even_if_that_is_interrupted(
    strategy: str, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    dead, others = f"{topic}-{SUBSCRIPTION}-DLQ", "others"
    target = f"{topic}-{SUBSCRIPTION}-RETRY" if strategy == "RetryTopic" else topic
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        retry_strategy=strategy,
        retry_max_attempts=1,
        dead_letter="Enabled",
        dead_letter_subscription="review",
    )
    peer.client.subscribe(topic, others).close()
    sent = [f"m{number}" for number in range(200)]
    fill_dead_letters(environ, peer, topic, sent, tmp_path / "log")
    assert backlog(pulsar_broker, dead, "review") == len(sent)

    few = start_redrive(environ, "--limit", "3")
    out, _ = few.communicate(timeout=60)
    assert (few.returncode, out) == (0, f"Sent 3 messages of {dead} back\n")
    killed = start_redrive(environ)
    wait_until(lambda: backlog(pulsar_broker, target) >= 20, "it sends")
    killed.kill()
    killed.communicate()
    rest = start_redrive(environ)
    assert rest.communicate(timeout=60)[0].startswith("Sent ")
    wait_until(lambda: backlog(pulsar_broker, dead, "review") == 0, "nothing is left")

    handled: list[Any] = []
    with running(environ, handled.append, tmp_path / "log"):
        wait_until(
            lambda: {message.data.decode() for message in handled.copy()} == set(sent),
            "all are handled",
        )
    assert {(message.attempt, message.topic, message.key) for message in handled} == {
        (1, topic, "k")
    }
    assert all(not message.properties for message in handled)
    expected = len(sent) if strategy == "RetryTopic" else 2 * len(sent)
    assert backlog(pulsar_broker, topic, others) >= expected
    if strategy == "RetryTopic":
        assert backlog(pulsar_broker, topic, others) == expected, "others do not see them again"


def test_all_dead_letters_of_a_batch_are_sent_back_once(
    pulsar_broker: Broker, peer: Peer, topic: str
) -> None:
    """Consumers of other clients put dead letters aside in batches."""
    dead = f"{topic}-{SUBSCRIPTION}-DLQ"
    environ = build_environment(
        pulsar_broker.service_url, topic, retry_strategy="RetryTopic", dead_letter="Enabled"
    )
    peer.client.subscribe(dead, SUBSCRIPTION).close()
    producer = peer.client.create_producer(
        dead, batching_enabled=True, batching_max_publish_delay_ms=500
    )
    for number in range(3):
        producer.send_async(b"m%d" % number, lambda *_: None)
    producer.flush()
    producer.close()
    assert backlog(pulsar_broker, dead) == 1, "they are one entry"

    out, _ = start_redrive(environ).communicate(timeout=60)

    assert out == f"Sent 3 messages of {dead} back\n"
    copies = peer.read(f"{topic}-{SUBSCRIPTION}-RETRY", 3)
    assert [copy.data() for copy in copies] == [b"m0", b"m1", b"m2"]
    wait_until(lambda: backlog(pulsar_broker, dead) == 0, "the batch is acknowledged")
