"""Temporary errors of a broker: which are reported, and which change nothing."""

from __future__ import annotations

from libs.common.conditions import find_condition
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import writes_of_the_operator
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.shown import ORDERS, POLL, build, condition, status, wanted

DEAD = "my-topic-my-subscription-DLQ"
RETRY = "my-topic-my-subscription-RETRY"


async def create_consumer(api: FakeApi, harness: OperatorHarness, broker: RecordedBroker) -> None:
    """Create a consumer with a retry topic and dead letters that follows its backlog."""
    broker.topics["my-topic"].subscriptions["my-subscription"] = 350
    broker.topics[DEAD] = RecordedTopic(subscriptions={"watch": 3})
    broker.topics[RETRY] = RecordedTopic(subscriptions={"my-subscription": 150})
    spec = {"autoscaling": {"maxReplicas": 9, **POLL}, "retry": {"strategy": "RetryTopic"}}
    api.create(build(broker, replicas=None, deadLetter={}, **spec))
    await harness.eventually(lambda: wanted(api) == 5)
    await harness.converged()


async def test_temporary_error_of_a_broker_changes_nothing(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    await create_consumer(api, harness, broker)
    mark, before = api.mark(), status(api)

    async def fail_once(name: str) -> None:
        broker.busy[name] = 1
        await harness.eventually(lambda: not broker.busy[name])
        asked = len(broker.requests)
        await harness.eventually(lambda: len(broker.requests) > asked + 4)
        await harness.converged()

    for name in ("my-topic", DEAD, RETRY):
        await fail_once(name)

    assert writes_of_the_operator(api, mark) == []
    assert status(api) == before


async def test_error_of_the_retry_topic_that_lasts_does_not_stop_autoscaling(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    await create_consumer(api, harness, broker)
    broker.busy[RETRY] = 1000
    broker.topics["my-topic"].subscriptions["my-subscription"] = 750

    await harness.eventually(lambda: wanted(api) == 8)

    def is_hidden() -> bool:
        held = find_condition(api.get(PULSAR_CONSUMER, ORDERS), "ScalingActive") or {}
        return f"{RETRY} cannot be read" in held.get("message", "")

    await harness.eventually(is_hidden)
    assert condition(api, "BrokerReachable")[0] == "True"
