"""Topics of every form: large messages in chunks, compacted topics, partitions that are added."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from operators.pulsarconsumer.app import source
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    RunningWorker,
    build_environment,
    new_topic,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker
from slipway_handler import Message, Reject

_CHUNKED_BYTES = 11 * 2**20
"""More than two chunks: a broker stores at most 5 MiB in an entry."""
_PARTITION_UPDATE_SECONDS = 100.0
"""The client looks for new partitions once a minute; this interval has no setting."""


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def test_message_in_chunks_is_copied_whole_and_put_aside_whole(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    payload = os.urandom(_CHUNKED_BYTES)
    producer = peer.client.create_producer(topic, chunking_enabled=True)
    producer.send(payload, partition_key="k")
    producer.close()
    calls: list[tuple[int, bool]] = []

    def handle(message: Message) -> None:
        calls.append((message.attempt, message.data == payload))
        raise ValueError("poison")

    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        retry_strategy="RetryTopic",
        retry_initial_delay_seconds=0.2,
        retry_max_attempts=2,
        dead_letter="Enabled",
    )
    with running(environ, handle, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("dead_lettered") == 1, "it is put aside")
    (dead,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)

    assert calls == [(1, True), (2, True)]
    assert dead.data() == payload
    stats = pulsar_broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION)
    assert stats["msgBacklog"] == 0


def test_message_is_handled_although_its_topic_is_unloaded_during_the_subscription(
    pulsar_broker: Broker, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SILENT_SECONDS", 2.0)
    topics = [new_topic() for _ in range(8)]
    for each in topics:
        peer.send(each, [b"m"])
    handled: set[str] = set()
    with ExitStack() as stack:
        for number, each in enumerate(topics):
            environ = build_environment(pulsar_broker.service_url, each)
            log = tmp_path / str(number)
            stack.enter_context(running(environ, lambda each: handled.add(each.topic), log))
            time.sleep(0.005 * number)  # Each at another moment of its subscription.
            pulsar_broker.request("PUT", f"{path_of(each)}/unload")
        wait_until(lambda: handled == set(topics), "all are handled", 120.0)


def has_stored(worker: RunningWorker, copies: int) -> bool:
    return worker.handled("dead_lettered") == copies


def has_tried(worker: RunningWorker) -> bool:
    """Return whether a copy was stored, or could not be."""
    failures = worker.value("broker_errors_total", operation="dead_letter")
    return failures > 0 or worker.handled("dead_lettered") > 0


def test_copies_are_stored_although_their_topic_is_unloaded_while_its_producer_is_created(
    pulsar_broker: Broker, peer: Peer, tmp_path: Path
) -> None:
    """The broker loses about half of the producers; their clients say that they are connected."""
    topics = [new_topic() for _ in range(8)]
    over = threading.Event()

    def unload(topic: str) -> None:
        while not over.is_set():
            pulsar_broker.request("PUT", f"{path_of(topic)}/unload")

    def reject(_: Message) -> None:
        raise Reject("poison")

    with ExitStack() as stack:
        workers = []
        for number, each in enumerate(topics):
            environ = build_environment(pulsar_broker.service_url, each, dead_letter="Enabled")
            log = tmp_path / str(number)
            workers.append(stack.enter_context(running(environ, reject, log)))
            peer.send(f"{each}-{SUBSCRIPTION}-DLQ", [])
        pool = stack.enter_context(ThreadPoolExecutor(len(topics)))
        stack.callback(over.set)
        unloads = [pool.submit(unload, f"{each}-{SUBSCRIPTION}-DLQ") for each in topics]
        for each in topics:
            peer.send(each, [b"m"] * 20)
        for worker in workers:
            wait_until(partial(has_tried, worker), "all have sent a copy")
        over.set()
        for done in unloads:
            done.result()
        for worker in workers:
            wait_until(partial(has_stored, worker, 20), "all are stored", 180.0)


def test_compacted_topic_brings_the_last_message_of_each_key(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    for number in range(3):
        for key in ("a", "b"):
            peer.send(topic, [f"{key}{number}".encode()], partition_key=key)
    compaction = f"{path_of(topic)}/compaction"
    pulsar_broker.request("PUT", compaction)
    wait_until(
        lambda: pulsar_broker.request("GET", compaction)["status"] == "SUCCESS", "it is compacted"
    )
    done: list[str] = []
    environ = build_environment(
        pulsar_broker.service_url, topic, subscription_type="Exclusive", read_compacted=True
    )
    with running(environ, lambda message: done.append(message.data.decode()), tmp_path / "log"):
        wait_until(lambda: len(done) >= 2, "both keys are handled")
        peer.send(topic, [b"c0"], partition_key="c")
        wait_until(lambda: done[-1] == "c0", "later messages are handled")

    assert done == ["a2", "b2", "c0"]


def test_state_of_the_subscription_is_replicated(
    pulsar_broker: Broker, topic: str, tmp_path: Path
) -> None:
    environ = build_environment(pulsar_broker.service_url, topic, replicate_subscription_state=True)
    with running(environ, lambda _: None, tmp_path / "log") as worker:
        worker.wait_ready()
        stats = pulsar_broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION)

    assert stats["isReplicated"]


@pytest.mark.parametrize("kind", ["KeyShared", "Failover"])
def test_partitions_that_are_added_are_consumed_in_order(
    kind: str, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    partitions = f"{path_of(topic)}/partitions"
    pulsar_broker.request("PUT", partitions, 1)
    done: dict[str, list[int]] = defaultdict(list)

    def handle(message: Message) -> None:
        done[message.key].append(int(message.data))

    def send(partition: int, numbers: range) -> None:
        key = f"k{partition}"
        payloads = [b"%d" % number for number in numbers]
        peer.send(f"{topic}-partition-{partition}", payloads, partition_key=key)

    environ = build_environment(pulsar_broker.service_url, topic, subscription_type=kind)
    with running(environ, handle, tmp_path / "log") as worker:
        worker.wait_ready()
        send(0, range(10))
        pulsar_broker.request("POST", partitions, 3)
        for partition in range(1, 3):
            send(partition, range(10))
        wait_until(lambda: len(done["k0"]) == 10, "the first partition is consumed")
        wait_until(
            lambda: len(done["k1"]) == len(done["k2"]) == 10,
            "the new partitions are consumed from their start",
            _PARTITION_UPDATE_SECONDS,
        )
        send(0, range(10, 20))
        wait_until(lambda: len(done["k0"]) == 20, "the first partition is still consumed")

    assert done == {"k0": [*range(20)], "k1": [*range(10)], "k2": [*range(10)]}


def test_keys_of_a_consumer_that_ends_are_taken_over_in_order(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """KeyShared, scaled down while messages of all keys wait."""
    keys, count = [f"k{number}" for number in range(8)], 30
    done: dict[str, list[int]] = defaultdict(list)
    handled_by: dict[str, int] = defaultdict(int)

    def handle_as(name: str, message: Message) -> None:
        done[message.key].append(int(message.data))
        handled_by[name] += 1

    environ = build_environment(
        pulsar_broker.service_url, topic, subscription_type="KeyShared", receiver_queue_size=4
    )
    with running(environ, lambda message: handle_as("stays", message), tmp_path / "log") as stays:
        stays.wait_ready()
        with running(
            {**environ, "PULSAR_CONSUMER_RATE_LIMIT_PER_SECOND": "20"},
            lambda message: handle_as("ends", message),
            tmp_path / "other",
        ) as ends:
            ends.wait_ready()
            for number in range(count):
                for key in keys:
                    peer.send(topic, [b"%d" % number], partition_key=key)
            wait_until(lambda: handled_by["ends"] >= 5, "both consume")
        wait_until(
            lambda: sum(len(numbers) for numbers in done.values()) >= count * len(keys),
            "the other consumer takes all keys over",
        )

    assert handled_by["stays"]
    assert done == {key: [*range(count)] for key in keys}


def test_topic_that_is_created_later_is_consumed_from_its_first_message(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """The default position counts only for topics that exist when the app starts."""
    received: list[bytes] = []
    peer.send(f"{topic}-old", [b"before"])
    environ = build_environment(
        pulsar_broker.service_url, "", topic_pattern=f"{topic}-.*", initial_position="Latest"
    )
    with running(
        environ, lambda message: received.append(message.data), tmp_path / "log"
    ) as worker:
        worker.wait_ready()
        peer.send(f"{topic}-new", [b"first", b"second"])
        peer.send(f"{topic}-old", [b"after"])
        wait_until(lambda: len(received) == 3, "the topic is found", _PARTITION_UPDATE_SECONDS)

    assert sorted(received) == [b"after", b"first", b"second"]
