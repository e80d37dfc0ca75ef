"""Attempts at a message that several consumers make, because pods or the broker fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

import pulsar
import pytest

from operators.pulsarconsumer.app import attempt_log
from operators.pulsarconsumer.app.core import headers
from operators.pulsarconsumer.app.core.attempts import AttemptRecord, AttemptTable, parse_record
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    AppProcess,
    Notes,
    Peer,
    app,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker
from slipway_handler import Message

HANDLERS = """
import os, time

def note(message):
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{os.getpid()} {message.attempt}\\n")

def fail(message):
    note(message)
    raise ValueError

def crash(message):
    note(message)
    time.sleep(0.5)  # The journal records calls that take longer than 0.2 s.
    os._exit(137)
"""
MAX_ATTEMPTS = 4


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path, HANDLERS)


def settings(broker: Broker, topic: str, **values: object) -> dict[str, str]:
    defaults: dict[str, object] = {
        "subscription_type": "KeyShared",
        "retry_max_attempts": MAX_ATTEMPTS,
        "retry_initial_delay_seconds": 1,
        "retry_max_delay_seconds": 1,
        "dead_letter": "Enabled",
    }
    return build_environment(broker.service_url, topic, **(defaults | values))


def environ(
    broker: Broker, topic: str, notes: Notes, folder: Path, **values: object
) -> dict[str, str]:
    own: dict[str, object] = {"journal_folder": folder / "journal"}
    own |= {"handler": "noted_handlers:fail"} | values
    return notes.environ | settings(broker, topic, **own)


def backlog(broker: Broker, topic: str) -> int:
    try:
        stats = broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION)
    except HTTPError:
        return -1  # The topic does not exist yet.
    return int(stats.get("msgBacklog", -1))


def attempts_topic(topic: str) -> str:
    return f"{topic}-{SUBSCRIPTION}-ATTEMPTS"


def is_dead_lettered(broker: Broker, topic: str) -> Callable[[], bool]:
    return lambda: backlog(broker, f"{topic}-{SUBSCRIPTION}-DLQ") > 0


def wait_stored(server: str, topic: str, count: int) -> None:
    """Wait until the failed attempts at the only message are stored."""
    client = pulsar.Client(server, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(attempts_topic(topic), pulsar.MessageId.earliest)
    table, made = AttemptTable(3600.0), 0
    try:
        while made < count:
            message = reader.read_next(30_000)
            record = parse_record(message.data())
            assert record is not None
            table.apply(record, topic, message.message_id(), 0.0)
            made = sum(table.count(identity) for identity in record.attempts)
    finally:
        client.close()


def kill_active(notes: Notes, *processes: AppProcess) -> None:
    """Kill the process that made the last attempt."""
    pid = int(notes.lines[-1].split()[0])
    (active,) = (each for each in processes if each.process.pid == pid)
    active.kill()


@pytest.mark.parametrize("kind", ["KeyShared", "Failover", "Exclusive"])
def test_consumer_continues_the_count_of_a_killed_one(
    kind: str, pulsar_broker: Broker, peer: Peer, topic: str, notes: Notes, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = (
        environ(pulsar_broker, topic, notes, folder, subscription_type=kind) for folder in folders
    )
    with app(first, folders[0]) as active:
        active.wait_ready()
        peer.send(topic, [b"poison"], partition_key="k")
        wait_until(lambda: len(notes.lines) == 2, "two attempts failed")
        if kind == "Exclusive":
            wait_stored(pulsar_broker.service_url, topic, 2)
            active.kill()
        with app(second, folders[1]) as other:
            if kind != "Exclusive":
                wait_stored(pulsar_broker.service_url, topic, 2)
                kill_active(notes, active, other)
            wait_until(is_dead_lettered(pulsar_broker, topic), "no attempt is left")
            wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")
            other.terminate()

    assert len(notes.lines) == MAX_ATTEMPTS, notes.lines
    assert len({line.split()[0] for line in notes.lines}) == 2, "both made attempts"
    (dead,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)
    assert dead.properties()[headers.TRIES] == str(MAX_ATTEMPTS)


@pytest.mark.parametrize("kind", ["KeyShared", "Failover"])
def test_count_survives_the_consumer_and_the_broker(
    kind: str, pulsar_broker: Broker, topic: str, notes: Notes, tmp_path: Path
) -> None:
    peer = Peer(pulsar_broker.service_url)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with app(environ(pulsar_broker, topic, notes, first, subscription_type=kind), first) as process:
        process.wait_ready()
        peer.send(topic, [b"poison"], partition_key="k")
        peer.close()
        wait_until(lambda: len(notes.lines) == 2, "two attempts failed")
        wait_stored(pulsar_broker.service_url, topic, 2)
        process.kill()
    pulsar_broker.kill()
    pulsar_broker.start()
    with app(
        environ(pulsar_broker, topic, notes, second, subscription_type=kind), second
    ) as process:
        wait_until(is_dead_lettered(pulsar_broker, topic), "no attempt is left")
        process.terminate()

    assert len(notes.lines) == MAX_ATTEMPTS, notes.lines


@pytest.mark.parametrize("kind", ["KeyShared", "Failover"])
def test_crashes_of_all_pods_use_up_the_attempts(
    kind: str, pulsar_broker: Broker, peer: Peer, topic: str, notes: Notes, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    environs = []
    for folder in folders:
        folder.mkdir()
        values = {"subscription_type": kind, "handler": "noted_handlers:crash"}
        environs.append(environ(pulsar_broker, topic, notes, folder, **values))
    pods = list(zip(environs, folders, strict=True))
    processes = [AppProcess(*pod) for pod in pods]
    try:
        for process in processes:
            process.wait_ready()
        peer.send(topic, [b"poison"], partition_key="k")
        done = is_dead_lettered(pulsar_broker, topic)

        def keep() -> bool:
            """Restart containers that have ended, as the kubelet does."""
            for number, process in enumerate(processes):
                if process.process.poll() is not None:
                    processes[number] = AppProcess(*pods[number])
            return done()

        wait_until(keep, "no attempt is left", 120)
    finally:
        for process in processes:
            process.kill()

    # While one pod restarts, its last crash is not known to the other.
    assert len(notes.lines) in (MAX_ATTEMPTS, MAX_ATTEMPTS + 1), notes.lines


class Failing:
    """A handler that fails always, and records which attempts it made."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.identity = ""

    def __call__(self, message: Message) -> None:
        self.attempts.append(message.attempt)
        self.identity = f"{message.publish_time}:{message.message_id}"
        raise ValueError


def publish(peer: Peer, topic: str, record: AttemptRecord) -> None:
    peer.send(attempts_topic(topic), [record.render()])


@pytest.mark.parametrize("kind", ["KeyShared", "Failover"])
def test_message_in_memory_has_no_more_attempts_if_others_made_them(
    kind: str, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    handler = Failing()
    peer.send(topic, [b"poison"])
    config = settings(
        pulsar_broker,
        topic,
        subscription_type=kind,
        retry_initial_delay_seconds=3,
        retry_max_delay_seconds=3,
    )
    with running(config, handler, tmp_path / "log") as consumer:
        wait_until(lambda: handler.attempts, "it fails")
        publish(peer, topic, AttemptRecord("other", {handler.identity: MAX_ATTEMPTS - 1}))
        wait_until(lambda: consumer.handled("dead_lettered") == 1, "no attempt is left")

    assert handler.attempts == [1]
    (dead,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)
    assert dead.properties()[headers.TRIES] == str(MAX_ATTEMPTS)
    assert dead.properties()[headers.EXCEPTION].startswith("AttemptsUsed")


def test_message_in_memory_is_dropped_if_another_consumer_dead_lettered_it(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """As after a change of the active consumer, which the previous one does not notice."""
    handler = Failing()
    peer.send(topic, [b"poison"])
    config = settings(
        pulsar_broker,
        topic,
        subscription_type="Failover",
        retry_initial_delay_seconds=3,
        retry_max_delay_seconds=3,
    )
    with running(config, handler, tmp_path / "log"):
        wait_until(lambda: handler.attempts, "it fails")
        publish(peer, topic, AttemptRecord("other", dead_lettered=(handler.identity,)))
        wait_until(lambda: backlog(pulsar_broker, topic) == 0, "it is acknowledged")

    assert handler.attempts == [1]
    assert backlog(pulsar_broker, f"{topic}-{SUBSCRIPTION}-DLQ") <= 0


def test_consumption_continues_if_attempts_cannot_be_shared(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """Another type of consumer makes the broker refuse, as without permission."""
    rival = peer.client.subscribe(attempts_topic(topic), SUBSCRIPTION)
    handler = Failing()
    peer.send(topic, [b"poison"])
    try:
        with running(settings(pulsar_broker, topic), handler, tmp_path / "log") as consumer:
            wait_until(lambda: consumer.handled("dead_lettered") == 1, "no attempt is left")
            assert consumer.worker.check_ready() is None
            assert consumer.value("broker_errors_total", operation="attempts") >= 1
    finally:
        rival.close()

    assert handler.attempts == [1, 2, 3, 4]


@pytest.mark.parametrize("partitions", [0, 2])
def test_records_that_are_not_needed_are_removed(
    partitions: int,
    pulsar_broker: Broker,
    peer: Peer,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers may be configured to create topics with partitions."""
    monkeypatch.setattr(attempt_log, "TRIM_SECONDS", 0.5)
    names = [attempts_topic(topic)]
    if partitions:
        path = names[0].replace("://", "/")
        pulsar_broker.request("PUT", f"{path}/partitions", partitions)
        names = [f"{names[0]}-partition-{number}" for number in range(partitions)]
    peer.send(topic, [b"poison", b"good"])

    def handle(message: Message) -> None:
        if message.data == b"poison" or message.attempt == 1:
            raise ValueError

    config = settings(pulsar_broker, topic, subscription_type="Shared")
    with running(config, handle, tmp_path / "log") as consumer:
        wait_until(lambda: consumer.handled("acknowledged") == 1, "the second attempt succeeds")
        wait_until(lambda: consumer.handled("dead_lettered") == 1, "no attempt is left")
        assert consumer.value("broker_errors_total", operation="attempts") == 0
        wait_until(
            lambda: all(backlog(pulsar_broker, name) == 0 for name in names), "all is removed"
        )

    assert peer.read(attempts_topic(topic), 1), "there were records"
