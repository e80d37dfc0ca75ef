"""Operator and app with a broker that is configured as in production.

The broker creates neither topics nor subscriptions automatically, deletes inactive topics, spreads
a namespace over several bundles and looks for delayed messages once a second.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import DEPLOYMENT, EVENT, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.app.harness import Peer
from operators.pulsarconsumer.broker.poll import StatusQuery, read_broker
from operators.pulsarconsumer.fake_nodes import ORDERS, run_fake_nodes
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.testing.broker import Broker, PulsarMissing
from operators.pulsarconsumer.testing.patient_admin import PatientAdmin

PRODUCTION = {
    "allowAutoTopicCreation": "false",
    "allowAutoSubscriptionCreation": "false",
    "brokerDeleteInactiveTopicsEnabled": "true",
    "brokerDeleteInactiveTopicsFrequencySeconds": "2",
    "brokerDeleteInactivePartitionedTopicMetadataEnabled": "true",
    "defaultNumberOfNamespaceBundles": "4",
    "delayedDeliveryTickTimeMillis": "1000",
}
_SECONDS = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Run a broker with production settings."""
    try:
        broker = Broker(config=PRODUCTION)
    except PulsarMissing as err:
        pytest.skip(str(err))
    with broker:
        yield broker


def build(broker: Broker, topic: str, **spec: Any) -> Manifest:
    address = {"serverAddress": broker.service_url, "adminAddress": broker.admin_url}
    return build_manifest(**address, topic=topic, subscriptionName="orders", **spec)


def new_topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def create_topic(broker: Broker, name: str) -> None:
    """Create a topic that stays: one without a subscription is deleted after two seconds."""
    path = f"persistent/public/default/{name}"
    broker.request("PUT", path)
    broker.request("PUT", f"{path}/subscription/keep")


def condition(api: FakeApi, name: str) -> Manifest:
    return dict(find_condition(api.get(PULSAR_CONSUMER, ORDERS), name) or {})


def status(api: FakeApi) -> Manifest:
    return dict(api.get(PULSAR_CONSUMER, ORDERS).get("status") or {})


def list_topics(broker: Broker) -> set[str]:
    return {name.rpartition("/")[2] for name in broker.request("GET", "persistent/public/default")}


async def test_failed_messages_are_retried_and_kept(
    api: FakeApi, harness: OperatorHarness, broker: Broker, tmp_path: Path
) -> None:
    """The retry and the dead-letter topic exist before a consumer starts (apache/pulsar#10845)."""
    topic = new_topic()
    create_topic(broker, topic)
    api.create(
        build(
            broker,
            topic,
            replicas=1,
            subscription={"create": "Operator"},
            retry={"strategy": "RetryTopic", "maxAttempts": 2},
            deadLetter={"subscriptionName": "review"},
            handler="operators.pulsarconsumer.app.harness:fail_first_attempt",
            messageLog={"samplePercent": 100},
        )
    )
    peer = Peer(broker.service_url)
    async with run_fake_nodes(api, tmp_path) as nodes:
        await harness.eventually(
            lambda: condition(api, "Ready").get("reason") == Reason.ALL_READY, timeout=_SECONDS
        )
        await asyncio.to_thread(peer.send, topic, [b"hello"])
        await harness.eventually(lambda: nodes.payloads == ["hello", "hello"], timeout=_SECONDS)
    await asyncio.to_thread(peer.close)

    assert list_topics(broker) >= {topic, f"{topic}-orders-RETRY", f"{topic}-orders-DLQ"}
    assert broker.subscription(f"{topic}-orders-DLQ", "review")
    # The status shows the retry topic after the next poll of the broker.
    await harness.eventually(
        lambda: (
            [each["topic"].rpartition("/")[2] for each in status(api)["subscriptions"]]
            == [topic, f"{topic}-orders-RETRY"]
        ),
        timeout=_SECONDS,
    )


async def test_attempts_are_shared(
    api: FakeApi, harness: OperatorHarness, broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    api.create(
        build(
            broker,
            topic,
            replicas=1,
            subscription={"create": "Operator", "deletionPolicy": "Delete"},
            deadLetter={},
            handler="operators.pulsarconsumer.app.harness:fail_first_attempt",
            messageLog={"samplePercent": 100},
        )
    )
    attempts = f"{topic}-orders-ATTEMPTS"
    peer = Peer(broker.service_url)
    async with run_fake_nodes(api, tmp_path) as nodes:
        await harness.eventually(
            lambda: condition(api, "Ready").get("reason") == Reason.ALL_READY, timeout=_SECONDS
        )
        await asyncio.to_thread(peer.send, topic, [b"hello"])
        await harness.eventually(lambda: len(nodes.payloads) == 1, timeout=_SECONDS)
        # A reader needs no subscription.
        reader = peer.client.create_reader(attempts, pulsar.MessageId.earliest)
        record = await asyncio.to_thread(reader.read_next, 30_000)
        reader.close()
        await harness.eventually(
            lambda: (
                [each["topic"].rpartition("/")[2] for each in status(api)["subscriptions"]]
                == [topic, attempts]
            ),
            timeout=_SECONDS,
        )
    await asyncio.to_thread(peer.close)
    api.delete(PULSAR_CONSUMER, ORDERS)
    # The broker deletes a topic without subscriptions.
    await harness.eventually(lambda: attempts not in list_topics(broker), timeout=_SECONDS)

    assert list(json.loads(record.data())["attempts"].values()) == [1]


async def test_missing_topic_is_named(
    api: FakeApi, harness: OperatorHarness, broker: Broker
) -> None:
    topic = new_topic()
    api.create(build(broker, topic, subscription={"create": "Operator"}))

    await harness.eventually(
        lambda: condition(api, "SubscriptionReady").get("reason") == Reason.TOPIC_MISSING,
        timeout=_SECONDS,
    )
    assert topic in condition(api, "SubscriptionReady")["message"]
    assert api.find(DEPLOYMENT, ORDERS) is None

    create_topic(broker, topic)
    await harness.eventually(lambda: api.find(DEPLOYMENT, ORDERS) is not None, timeout=_SECONDS)


async def test_partitions_that_are_added_are_subscribed_and_counted(broker: Broker) -> None:
    topic = new_topic()
    broker.request("PUT", f"persistent/public/default/{topic}/partitions", 2)
    status_query = StatusQuery((topic,), "s", create=True)
    async with PatientAdmin.connect(broker) as admin:
        before = await read_broker(admin, status_query)
        broker.request("POST", f"persistent/public/default/{topic}/partitions", 5)
        after = await read_broker(admin, status_query, before)

    assert (before.lanes, after.lanes) == (2, 5)
    assert len({part.name for part in after.parts}) == 5


async def test_subscriptions_of_an_earlier_spec_are_reported_then_deleted(
    api: FakeApi, harness: OperatorHarness, broker: Broker, tmp_path: Path
) -> None:
    first, second = new_topic(), new_topic()
    for topic in (first, second):
        create_topic(broker, topic)
    spec = {"subscription": {"create": "Operator"}, "retry": {"strategy": "RetryTopic"}}
    api.create(build(broker, first, replicas=1, **spec))
    peer = Peer(broker.service_url)
    async with run_fake_nodes(api, tmp_path):
        await harness.eventually(
            lambda: len(status(api).get("subscriptions", [])) == 2, timeout=_SECONDS
        )

        api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"topic": second, "retry": None}})
        await harness.eventually(
            lambda: condition(api, "SubscriptionsAbandoned").get("status") == "True",
            timeout=_SECONDS,
        )
        # The consumer of the old topic runs until the roll-out has replaced it.
        await harness.eventually(
            lambda: broker.subscription(first, "orders")["consumers"] == [], timeout=_SECONDS
        )
        await asyncio.to_thread(peer.send, first, [b"left behind"])
        await harness.eventually(
            lambda: [each["backlog"] for each in status(api)["abandonedSubscriptions"]] == [1, 0],
            timeout=_SECONDS,
        )
        assert broker.subscription(first, "orders"), "nothing is deleted under policy Retain"
        reported = [e for e in api.objects(EVENT, "default") if e["reason"] == Reason.SPEC_CHANGED]
        assert len(reported) == 1

        policy = {"spec": {"subscription": {"deletionPolicy": "Delete"}}}
        api.patch(PULSAR_CONSUMER, ORDERS, policy)
        await harness.eventually(
            lambda: "abandonedSubscriptions" not in status(api), timeout=_SECONDS
        )
        assert broker.subscription(second, "orders"), "the present subscription stays"
    assert f"{first}-orders-RETRY" not in list_topics(broker) or not broker.subscription(
        f"{first}-orders-RETRY", "orders"
    )
    assert condition(api, "SubscriptionsAbandoned") == {}
    await asyncio.to_thread(peer.close)
