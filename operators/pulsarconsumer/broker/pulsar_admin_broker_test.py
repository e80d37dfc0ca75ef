"""The client of the admin API against a real broker."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pulsar
import pytest

from operators.pulsarconsumer.broker import pulsar_admin
from operators.pulsarconsumer.broker.errors import AdminConflict, AdminNotFound
from operators.pulsarconsumer.broker.poll import StatusQuery, read_broker
from operators.pulsarconsumer.broker.pulsar_admin import PulsarAdmin
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.report import Report
from operators.pulsarconsumer.testing.broker import Broker
from operators.pulsarconsumer.testing.patient_admin import PatientAdmin


@pytest.fixture
async def admin(pulsar_broker: Broker) -> AsyncIterator[PulsarAdmin]:
    """Connect to the broker."""
    async with PatientAdmin.connect(pulsar_broker) as admin:
        yield admin


@pytest.fixture
def topic() -> str:
    """Name a topic that no other test uses."""
    return f"t-{uuid.uuid4().hex[:8]}"


def produce(broker: Broker, topic: str, count: int) -> None:
    """Send messages in one batch, which is one entry."""
    client = pulsar.Client(
        broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=200
    )

    def sent(*_: Any) -> None:
        """Ignore the response."""

    for number in range(count):
        producer.send_async(b"message %d" % number, sent)
    producer.flush()
    client.close()


async def test_missing_topic_and_subscription_are_told(admin: PulsarAdmin, topic: str) -> None:
    with pytest.raises(AdminNotFound):
        await admin.count_partitions(Topic.parse(topic))

    report = await read_broker(admin, StatusQuery((topic,), "s"))

    assert (report.topics[0].exists, report.subscribed, report.entries) == (False, False, 0)


async def test_statistics_that_are_too_long_are_read_without_partitions_or_consumers(
    pulsar_broker: Broker, admin: PulsarAdmin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"persistent/public/default/{topic}"
    pulsar_broker.request("PUT", f"{path}/partitions", 8)
    client = pulsar.Client(pulsar_broker.service_url)
    kind = pulsar.ConsumerType.Shared
    for _ in range(6):
        client.subscribe(topic, "s", consumer_type=kind, receiver_queue_size=1)
    await asyncio.to_thread(produce, pulsar_broker, topic, 20)
    status_query = StatusQuery((topic,), "s")
    stats, query = f"{path}/partitioned-stats", "excludePublishers=true&perPartition=false"
    joined, totals = (
        len(json.dumps(pulsar_broker.request("GET", f"{stats}?{query}{more}")))
        for more in ("", "&excludeConsumers=true")
    )

    full = await read_broker(admin, status_query)
    monkeypatch.setattr(pulsar_admin, "_BODY_LIMIT", joined + 1000)
    one = await read_broker(admin, status_query, full, 10.0)
    monkeypatch.setattr(pulsar_admin, "_BODY_LIMIT", totals + 1000)
    two = await read_broker(admin, status_query, one, 20.0)
    monkeypatch.undo()
    kept = await read_broker(admin, status_query, two, 600.0)
    again = await read_broker(admin, status_query, kept, 611.0)
    client.close()

    def read(report: Report) -> tuple[int, bool, bool, int]:
        (shown,) = report.topics
        return shown.consumers, shown.counted, shown.entries > 0, len(shown.parts)

    assert read(full) == read(again) == (6, True, True, 8)
    assert read(one) == (6, True, True, 1)
    # Brokers before 3.1 ignore excludeConsumers.
    least = (6, True, True, 1) if pulsar_broker.release == "3.0" else (0, False, True, 1)
    assert read(two) == read(kept) == least


async def test_subscription_is_made_once_and_backlog_waits_in_it(
    pulsar_broker: Broker, admin: PulsarAdmin, topic: str
) -> None:
    status_query = StatusQuery((topic,), "s", create=True, dead_letters=f"{topic}-s-DLQ")

    first = await read_broker(admin, status_query)
    again = await read_broker(admin, status_query)
    with pytest.raises(AdminConflict):
        await admin.create_subscription(Topic.parse(topic), "s")
    await asyncio.to_thread(produce, pulsar_broker, topic, 200)
    reported = (await read_broker(admin, status_query)).topics[0]

    assert (first.created, first.subscribed) == (True, True)
    assert (again.created, again.dead_letters) == (False, 0)
    assert reported.entries < 10, "a batch is one entry"
    assert 190 <= reported.messages <= 210, "messages are estimated"
    assert reported.oldest is not None


@pytest.mark.parametrize("batching", [True, False])
async def test_acknowledged_messages_behind_one_that_waits_are_no_backlog(
    pulsar_broker: Broker, admin: PulsarAdmin, topic: str, batching: bool
) -> None:
    status_query = StatusQuery((topic,), "s", create=True)
    await read_broker(admin, status_query)

    client = pulsar.Client(pulsar_broker.service_url)

    def consume() -> None:
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        client.create_producer(topic).send(b"waits")
        producer = client.create_producer(topic, batching_enabled=batching)
        for number in range(500):
            producer.send_async(b"message %d" % number, lambda *_: None)
        producer.flush()
        for _ in range(501):
            message = consumer.receive(10_000)
            if message.data() != b"waits":
                consumer.acknowledge(message)

    await asyncio.to_thread(consume)
    async with asyncio.timeout(30):
        while (seen := await read_broker(admin, status_query)).entries > 1:
            await asyncio.sleep(0.05)
    await asyncio.to_thread(client.close)
    later = await read_broker(admin, status_query)

    assert (seen.topics[0].consumers, seen.topics[0].due_entries) == (1, 1)
    # A single entry, which may be taken for a batch of the usual size.
    assert seen.topics[0].size > 5000
    assert seen.topics[0].messages <= (500 if batching else 1)
    assert (later.topics[0].consumers, later.topics[0].messages) == (0, 1)


async def test_partitions_are_summed_up(
    pulsar_broker: Broker, admin: PulsarAdmin, topic: str
) -> None:
    pulsar_broker.request("PUT", f"persistent/public/default/{topic}/partitions", 3)
    status_query = StatusQuery((topic,), "s", create=True)
    await read_broker(admin, status_query)
    await asyncio.to_thread(produce, pulsar_broker, topic, 30)

    report = await read_broker(admin, status_query)

    assert (report.topics[0].partitions, report.lanes) == (3, 3)
    assert 25 <= report.topics[0].messages <= 35
    names = sorted(part.name for part in report.parts)  # The broker tells them in any order.
    assert names == [f"persistent://public/default/{topic}-partition-{n}" for n in range(3)]
    assert sum(part.entries for part in report.parts) == report.entries > 0
    assert report.oldest is not None


async def test_seek_moves_to_the_end_and_back(
    pulsar_broker: Broker, admin: PulsarAdmin, topic: str
) -> None:
    status_query = StatusQuery((topic,), "s", create=True)
    await read_broker(admin, status_query)
    await asyncio.to_thread(produce, pulsar_broker, topic, 10)

    await admin.reset_cursor(Topic.parse(topic), "s", 4_000_000_000_000)
    assert (await read_broker(admin, status_query)).entries == 0
    await admin.reset_cursor(Topic.parse(topic), "s", 0)

    assert (await read_broker(admin, status_query)).entries >= 1


async def test_deleted_subscription_is_gone(admin: PulsarAdmin, topic: str) -> None:
    name = "odd%2e?#&+name"
    report = await read_broker(admin, StatusQuery((topic,), name, create=True))
    assert report.subscribed

    await admin.delete_subscription(Topic.parse(topic), name)

    with pytest.raises(AdminNotFound):
        await admin.delete_subscription(Topic.parse(topic), name)
