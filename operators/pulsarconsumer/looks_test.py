"""The broker as the operator sees it, over HTTP: answers, outages, credentials, an end."""

from __future__ import annotations

import base64

from libs.common.conditions import find_condition
from libs.common.kinds import (
    DEPLOYMENT,
    EVENT,
    NAMESPACE,
    SECRET,
    Key,
    Manifest,
    build_object,
)
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import writes_of_the_operator
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.naming import FINALIZER
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.shown import ORDERS, POLL, build, condition, status, wanted

LOGIN = {"type": "Token", "token": {"secretKeyRef": {"name": "login", "key": "token"}}}


async def test_backlog_and_dead_letters_are_shown(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 1234
    broker.topics["my-topic-my-subscription-DLQ"] = RecordedTopic(subscriptions={"watch": 3})

    api.create(build(broker, deadLetter={}))
    await harness.converged()
    await harness.eventually(lambda: "backlog" in status(api))

    held = status(api)
    assert (held["backlog"]["entries"], held["backlog"]["messagesEstimate"]) == (1200, 1200)
    assert held["deadLetter"]["backlog"] == 3
    assert held["oldestMessageTime"] == "2026-01-01T00:00:00Z"
    assert condition(api, "SubscriptionReady") == ("True", Reason.EXISTS)
    series = {"object_namespace": "default", "object": "orders"}
    assert harness.metric("pulsarconsumer_backlog_messages", **series)
    assert harness.metric("pulsarconsumer_oldest_message_age_seconds", **series) > 86_400


async def test_missing_rights_on_the_dead_letter_topic_stop_neither_status_nor_autoscaling(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 350
    dead = "my-topic-my-subscription-DLQ"
    broker.topics[dead] = RecordedTopic(subscriptions={"watch": 3})
    broker.forbidden = {dead}

    scaling = {"maxReplicas": 5, **POLL}
    api.create(build(broker, replicas=None, autoscaling=scaling, deadLetter={}))

    await harness.eventually(lambda: wanted(api) == 4)
    await harness.eventually(lambda: "backlog" in status(api))
    assert condition(api, "AuthenticationValid")[0] == "True"
    assert condition(api, "BrokerReachable")[0] == "True"


async def test_operator_makes_the_subscription_before_the_pods(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.status = 503
    api.create(build(broker, subscription={"create": "Operator"}))
    await harness.eventually(
        lambda: condition(api, "Ready") == ("False", Reason.WAITING_FOR_SUBSCRIPTION)
    )
    assert api.find(DEPLOYMENT, ORDERS) is None

    broker.status = 0

    await harness.eventually(lambda: wanted(api) == 2)
    assert "my-subscription" in broker.topics["my-topic"].subscriptions


async def test_autoscaling_asks_the_broker_of_the_server_address(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 350
    server = broker.address  # An http service URL is the address of the admin API as well.
    scaling = {"maxReplicas": 5, **POLL}
    api.create(build_manifest(serverAddress=server, replicas=None, autoscaling=scaling))

    await harness.eventually(lambda: wanted(api) == 4)


async def test_topics_of_the_consumers_are_created_by_the_operator(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.creates_topics = False
    retry, dead = (f"my-topic-my-subscription-{suffix}" for suffix in ("RETRY", "DLQ"))

    api.create(
        build(broker, retry={"strategy": "RetryTopic"}, deadLetter={"subscriptionName": "review"})
    )
    await harness.eventually(lambda: len(broker.topics) == 3)
    await harness.converged()

    assert list(broker.topics[retry].subscriptions) == ["my-subscription"]
    assert list(broker.topics[dead].subscriptions) == ["review"]


async def test_topic_of_attempts_is_created_by_the_operator(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.creates_topics = False
    attempts = "my-topic-my-subscription-ATTEMPTS"

    api.create(build(broker, deadLetter={}))
    await harness.eventually(lambda: attempts in broker.topics)
    await harness.eventually(lambda: attempts in str(status(api).get("subscriptions")))

    assert list(broker.topics[attempts].subscriptions) == ["my-subscription"]
    assert "abandonedSubscriptions" not in status(api)


async def test_missing_rights_on_the_topic_of_attempts_do_not_matter(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 350
    broker.creates_topics = False
    broker.forbidden = {"my-topic-my-subscription-ATTEMPTS"}

    api.create(build(broker, deadLetter={}))
    await harness.eventually(lambda: condition(api, "SubscriptionReady")[0] == "True")

    assert condition(api, "BrokerReachable")[0] == "True"


async def test_dead_letter_topic_without_a_subscription_gets_one(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    """The operator was killed between the creation of the topic and of its subscription."""
    broker.topics["my-topic-my-subscription-DLQ"] = RecordedTopic(subscriptions={})

    api.create(build(broker, deadLetter={"subscriptionName": "review"}))

    dead = broker.topics["my-topic-my-subscription-DLQ"]
    await harness.eventually(lambda: list(dead.subscriptions) == ["review"])


async def test_dead_letter_topic_with_another_subscription_is_left_alone(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    dead = broker.topics["my-topic-my-subscription-DLQ"] = RecordedTopic(subscriptions={"mine": 3})

    api.create(build(broker, deadLetter={"subscriptionName": "review"}))
    await harness.eventually(lambda: condition(api, "BrokerReachable")[0] == "True")
    await harness.converged()

    assert dead.subscriptions == {"mine": 3}


async def test_number_that_the_engine_ignores_is_reported(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 150
    api.create(build(broker, replicas=None, autoscaling={"maxReplicas": 5, **POLL}))
    await harness.eventually(lambda: wanted(api) == 2)

    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"replicas": 4}})

    await harness.eventually(
        lambda: any(e["reason"] == Reason.REPLICAS_IGNORED for e in api.objects(EVENT, "default"))
    )
    assert wanted(api) == 2

    def is_reported() -> bool:
        held = find_condition(api.get(PULSAR_CONSUMER, ORDERS), "ScalingActive") or {}
        return "spec.replicas: 4" in held.get("message", "")

    await harness.eventually(is_reported, "the condition names the field")


async def test_outage_changes_nothing_but_conditions(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 350
    scaling = {"maxReplicas": 5, **POLL, "fallback": {"failureThreshold": 2, "replicas": 1}}
    api.create(build(broker, replicas=None, autoscaling=scaling))
    await harness.eventually(lambda: wanted(api) == 4)

    broker.stop()
    await harness.eventually(lambda: condition(api, "BrokerReachable")[0] == "False")
    await harness.eventually(lambda: condition(api, "ScalingActive")[0] == "False")
    await harness.restart()
    await harness.eventually(lambda: condition(api, "BrokerReachable")[0] == "False")
    assert wanted(api) == 4
    assert condition(api, "AuthenticationValid")[0] == "Unknown"

    broker.topics["my-topic"].subscriptions["my-subscription"] = 500
    broker.start()
    await harness.eventually(lambda: wanted(api) == 5)
    await harness.eventually(lambda: condition(api, "BrokerReachable") == ("True", Reason.ANSWERED))


async def test_broker_that_hangs_holds_up_nobody(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.delay = 8.0
    for number in range(20):
        api.create(build_manifest(f"slow-{number}", adminAddress=broker.address))

    api.create(build(broker))

    await harness.eventually(lambda: len(api.objects(DEPLOYMENT)) == 21)
    assert condition(api, "BrokerReachable")[0] != "True"


async def test_secret_that_the_api_server_does_not_tell_now_is_no_trouble_of_the_broker(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.token = "token-1"
    api.create(build_secret("token-1"))
    api.create(build(broker, authentication=LOGIN))
    await harness.eventually(lambda: condition(api, "AuthenticationValid")[0] == "True")

    await harness.converged()
    looks, mark = len(broker.requests), api.mark()
    fault = api.fail("GET", SECRET, status=503, times=2)
    await harness.eventually(lambda: fault.hits == 2 and len(broker.requests) > looks)

    assert not writes_of_the_operator(api, mark)


async def test_rotated_token_is_used_and_never_shown(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.token = "new-token-1"
    api.create(build(broker, authentication=LOGIN))
    await harness.eventually(
        lambda: condition(api, "AuthenticationValid") == ("False", Reason.SECRET_MISSING)
    )
    api.create(build_secret("old-token-1"))
    await harness.eventually(
        lambda: condition(api, "AuthenticationValid") == ("False", Reason.AUTHENTICATION_FAILED)
    )
    assert condition(api, "BrokerReachable")[0] == "True"

    api.patch(SECRET, Key("default", "login"), {"data": build_secret("new-token-1")["data"]})

    await harness.eventually(lambda: condition(api, "AuthenticationValid")[0] == "True")
    shown = str([*api.objects(PULSAR_CONSUMER), *api.objects(DEPLOYMENT)])
    assert "token-1" not in shown


async def create_with_login(api: FakeApi, harness: OperatorHarness, broker: RecordedBroker) -> None:
    """Create a consumer that deletes its subscription, and wait until it has used its login."""
    api.create(build_secret("token"))
    api.create(build(broker, authentication=LOGIN, subscription={"deletionPolicy": "Delete"}))
    await harness.eventually(lambda: condition(api, "BrokerReachable")[0] == "True")


def build_secret(token: str) -> Manifest:
    """Build the Secret of the login."""
    data = {"token": base64.b64encode(token.encode()).decode()}
    return build_object(SECRET, "login", "default", data=data)


async def test_subscription_goes_after_the_consumers(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker, subscription={"create": "Operator", "deletionPolicy": "Delete"}))
    await harness.eventually(lambda: wanted(api) == 2)
    assert api.get(PULSAR_CONSUMER, ORDERS)["metadata"]["finalizers"] == [FINALIZER]
    broker.status = 500

    api.delete(PULSAR_CONSUMER, ORDERS)
    await harness.eventually(
        lambda: condition(api, "Terminating") == ("True", Reason.DELETING_SUBSCRIPTION)
    )
    assert api.find(DEPLOYMENT, ORDERS) is None
    broker.status = 0
    api.patch(PULSAR_CONSUMER, ORDERS, {"metadata": {"annotations": {"look": "again"}}})

    await harness.eventually(lambda: api.find(PULSAR_CONSUMER, ORDERS) is None)
    assert broker.topics["my-topic"].subscriptions == {}


async def test_consumers_that_take_their_time_to_end_are_asked_once(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    """Found by the sweep: the deletion was sent fifty times a second while they drained."""
    api.create(build(broker, subscription={"create": "Operator", "deletionPolicy": "Delete"}))
    await harness.eventually(lambda: wanted(api) == 2)
    draining = {"metadata": {"finalizers": ["example.com/draining"]}}
    api.patch(DEPLOYMENT, ORDERS, draining)
    mark = api.mark()

    api.delete(PULSAR_CONSUMER, ORDERS)
    await harness.converged()

    deletions = [each for each in writes_of_the_operator(api, mark) if each.kind == DEPLOYMENT]
    assert len(deletions) == 1
    assert condition(api, "Terminating") == ("True", Reason.ENDING_CONSUMERS)
    api.patch(DEPLOYMENT, ORDERS, {"metadata": {"finalizers": None}})
    await harness.eventually(lambda: api.find(PULSAR_CONSUMER, ORDERS) is None)


async def test_subscription_is_kept_by_default(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 5
    api.create(build(broker))
    await harness.converged()
    assert not api.get(PULSAR_CONSUMER, ORDERS)["metadata"].get("finalizers")

    api.delete(PULSAR_CONSUMER, ORDERS)
    await harness.converged()

    assert broker.topics["my-topic"].subscriptions == {"my-subscription": 5}


async def test_number_that_waits_for_a_subscription_is_not_told_as_done(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker, subscription={"create": "Operator"}))
    await harness.eventually(lambda: wanted(api) == 2)
    broker.status = 503
    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"topic": "other", "replicas": 5}})
    await harness.eventually(
        lambda: condition(api, "Ready") == ("False", Reason.WAITING_FOR_SUBSCRIPTION)
    )
    await harness.idle()
    reported = [each["reason"] for each in api.objects(EVENT, "default")]
    assert (wanted(api), Reason.SCALED in reported) == (2, False)

    broker.status = 0
    broker.topics["other"] = RecordedTopic()
    await harness.eventually(lambda: wanted(api) == 5)


async def test_namespace_that_is_deleted_with_the_secret_does_not_wait(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    await create_with_login(api, harness, broker)
    broker.status = 500  # Otherwise the subscription might be deleted before the Secret.

    api.delete(NAMESPACE, Key("", "default"))
    await harness.eventually(lambda: api.find(SECRET, Key("default", "login")) is None)

    await harness.eventually(lambda: api.find(PULSAR_CONSUMER, ORDERS) is None)


async def test_deletion_without_the_secret_tells_the_way_out(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    await create_with_login(api, harness, broker)
    api.delete(SECRET, Key("default", "login"))
    api.delete(DEPLOYMENT, ORDERS)
    api.delete(PULSAR_CONSUMER, ORDERS)

    def message() -> str:
        held = find_condition(api.get(PULSAR_CONSUMER, ORDERS), "Terminating")
        return str(held["message"]) if held else ""

    await harness.eventually(lambda: "deletionPolicy to Retain" in message())
    assert "there is no Secret login" in message()
    retain = {"spec": {"subscription": {"deletionPolicy": "Retain"}}}
    api.patch(PULSAR_CONSUMER, ORDERS, retain)
    await harness.eventually(lambda: api.find(PULSAR_CONSUMER, ORDERS) is None)
