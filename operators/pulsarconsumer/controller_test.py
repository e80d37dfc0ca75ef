"""The pulsarconsumer operator against the fake API, with a broker that does what it is told."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import (
    DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    SECRET,
    Key,
    Manifest,
    build_object,
    key_of,
)
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import writes_of_the_operator
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer, Reason
from operators.pulsarconsumer.controller import OPERATOR
from operators.pulsarconsumer.naming import FINALIZER
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.resources import (
    HORIZONTAL_POD_AUTOSCALER,
    POD_MONITOR,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
)
from operators.pulsarconsumer.samples import build_manifest, build_rollout

ORDERS = Key("default", "orders")
POLL = {"pollSeconds": 1}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run a fake API server that serves PulsarConsumers."""
    async with FakeApi() as api:
        api.register(build_crd(PulsarConsumer))
        yield api


@pytest.fixture
def broker() -> Iterator[RecordedBroker]:
    """Run a broker that has the topic and nothing in it."""
    with RecordedBroker() as broker:
        broker.topics["my-topic"] = RecordedTopic()
        yield broker


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator."""
    async with OperatorHarness(
        OPERATOR,
        api.config,
        allow_loopback_brokers=True,
        poll_seconds=1,
        broker_timeout_seconds=1,
        backoff_max_seconds=1,
    ) as harness:
        yield harness


def build(broker: RecordedBroker, **spec: Any) -> Manifest:
    return build_manifest(adminAddress=broker.address, **spec)


def run(api: FakeApi, ready: int | None = None) -> None:
    """Do what the controller of Deployments does."""
    for deployment in api.objects(DEPLOYMENT):
        api.patch_status(DEPLOYMENT, key_of(deployment), build_rollout(deployment, ready))


def wanted(api: FakeApi) -> int | None:
    """Return the number of pods that the Deployment is to have."""
    deployment = api.find(DEPLOYMENT, ORDERS)
    return None if deployment is None else int(deployment["spec"]["replicas"])


def condition(api: FakeApi, name: str) -> tuple[str, str]:
    """Return status and reason of a condition."""
    found = find_condition(api.get(PULSAR_CONSUMER, ORDERS), name) or {}
    return str(found.get("status")), str(found.get("reason"))


def status(api: FakeApi) -> Manifest:
    return dict(api.get(PULSAR_CONSUMER, ORDERS).get("status") or {})


def template(api: FakeApi) -> Manifest:
    return dict(api.get(DEPLOYMENT, ORDERS)["spec"]["template"])


# Kept.


async def test_kept_manifest_gets_its_consumers_though_no_broker_answers(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_manifest(serverAddress="pulsar://127.0.0.1:1"))
    await harness.settled()
    run(api)
    await harness.settled()

    held = status(api)
    assert wanted(api) == 2
    assert (held["server"], held["topic"]) == ("pulsar://127.0.0.1:1", "my-topic")
    assert (held["subscription"], held["replicas"]) == ("my-subscription", 2)
    assert condition(api, "Ready") == ("True", Reason.ALL_READY)
    await harness.eventually(
        lambda: condition(api, "BrokerReachable") == ("False", Reason.UNREACHABLE)
    )


async def test_new_number_restarts_no_pod_and_a_new_topic_does(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker))
    await harness.settled()
    before = template(api)

    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"replicas": 5}})
    await harness.settled()
    assert (wanted(api), template(api)) == (5, before)
    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"topic": "other"}})
    await harness.settled()

    assert template(api) != before


async def test_foreign_deployment_is_left_alone(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    foreign = build_object(
        DEPLOYMENT,
        "orders",
        "default",
        spec={
            "replicas": 7,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "a", "image": "b"}]},
            },
        },
    )
    api.create(foreign)

    api.create(build(broker))

    await harness.eventually(lambda: condition(api, "Ready") == ("False", Reason.NOT_APPLIED))
    assert wanted(api) == 7


async def test_drift_of_the_deployment_is_corrected(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker))
    await harness.settled()

    api.patch(DEPLOYMENT, ORDERS, {"spec": {"replicas": 9}})
    await harness.settled()

    assert wanted(api) == 2


async def test_paused_ends_all_consumers(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker, paused=True))
    await harness.settled()
    run(api)
    await harness.settled()
    assert wanted(api) == 0
    assert condition(api, "Paused") == ("True", Reason.PAUSED)
    assert condition(api, "Ready") == ("True", Reason.PAUSED)

    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"paused": False}})
    await harness.settled()

    assert wanted(api) == 2
    assert condition(api, "Paused") == ("None", "None")


# The broker.


async def test_backlog_and_dead_letters_are_shown(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 1234
    broker.topics["my-topic-my-subscription-DLQ"] = RecordedTopic(subscriptions={"watch": 3})

    api.create(build(broker, deadLetter={}))
    await harness.settled()
    await harness.eventually(lambda: "backlog" in status(api))

    held = status(api)
    assert (held["backlog"]["entries"], held["backlog"]["messagesEstimate"]) == (1200, 1200)
    assert held["deadLetter"]["backlog"] == 3
    assert held["oldestMessageTime"] == "2026-01-01T00:00:00Z"
    assert condition(api, "SubscriptionReady") == ("True", Reason.EXISTS)
    assert harness.metric(
        "pulsarconsumer_backlog_messages", object_namespace="default", object="orders"
    )


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


async def test_rotated_token_is_used_and_never_shown(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.token = "new-token-1"
    login = {"type": "Token", "token": {"secretKeyRef": {"name": "login", "key": "token"}}}
    api.create(build(broker, authentication=login))
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


def build_secret(token: str) -> Manifest:
    """Build the Secret of the login."""
    data = {"token": base64.b64encode(token.encode()).decode()}
    return build_object(SECRET, "login", "default", data=data)


# Scaling.


async def test_native_engine_wakes_up_follows_and_ends(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    scaling = {
        "maxReplicas": 8,
        "pollSeconds": 1,
        "cooldownSeconds": 0,
        "behavior": {"scaleDown": {"stabilizationSeconds": 0}},
    }
    api.create(build(broker, replicas=None, autoscaling=scaling))
    await harness.eventually(lambda: "my-subscription" in broker.topics["my-topic"].subscriptions)
    await harness.eventually(lambda: wanted(api) == 0)

    broker.topics["my-topic"].subscriptions["my-subscription"] = 450
    await harness.eventually(lambda: wanted(api) == 5)
    await harness.eventually(lambda: status(api)["autoscaling"]["desiredReplicas"] == 5)
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0

    await harness.eventually(lambda: wanted(api) == 0)


async def test_settled_engine_is_silent_also_after_a_restart(
    api: FakeApi, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 250
    scaling = {"maxReplicas": 5, "pollSeconds": 3600}
    async with OperatorHarness(OPERATOR, api.config, allow_loopback_brokers=True) as harness:
        api.create(build(broker, replicas=None, autoscaling=scaling))
        await harness.settled()
        run(api)
        await harness.settled()
        assert wanted(api) == 3

        mark = api.mark()
        await harness.restart()
        await harness.settled()
        for _ in range(3):
            api.patch(PULSAR_CONSUMER, ORDERS, {"metadata": {"annotations": {"touched": "yes"}}})
            await harness.settled()

        assert writes_of_the_operator(api, mark) == []


async def test_hpa_is_made_and_goes_with_the_engine(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker, autoscaling={"engine": "HPA", "minReplicas": 1, "maxReplicas": 3}))
    await harness.settled()
    target = api.get(HORIZONTAL_POD_AUTOSCALER, ORDERS)["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("PulsarConsumer", "orders")
    assert wanted(api) == 2

    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"autoscaling": None}})
    await harness.settled()

    assert api.find(HORIZONTAL_POD_AUTOSCALER, ORDERS) is None
    assert condition(api, "ScalingActive") == ("None", "None")


async def test_missing_keda_is_told_and_used_where_it_is(api: FakeApi) -> None:
    scaling = {"engine": "KEDA", "maxReplicas": 3}
    login = {"type": "Token", "token": {"secretKeyRef": {"name": "login", "key": "token"}}}
    async with OperatorHarness(OPERATOR, api.config, poll_seconds=0) as harness:
        api.create(build_manifest(autoscaling=scaling, authentication=login))
        await harness.settled()
        assert condition(api, "ScalingActive") == ("False", Reason.ENGINE_MISSING)
        assert wanted(api) == 2

        for kind in (SCALED_OBJECT, TRIGGER_AUTHENTICATION):
            api.register(build_loose_crd(kind, None, ()))
        await harness.restart()
        await harness.settled()

    trigger = api.get(SCALED_OBJECT, ORDERS)["spec"]["triggers"][0]
    assert trigger["metadata"]["topic"] == "persistent://public/default/my-topic"
    assert trigger["authenticationRef"] == {"name": "orders"}
    assert api.get(TRIGGER_AUTHENTICATION, ORDERS)["spec"]["secretTargetRef"][0]["name"] == "login"


async def test_budget_and_monitor_come_and_go(api: FakeApi, broker: RecordedBroker) -> None:
    api.register(build_loose_crd(POD_MONITOR, None, ()))
    async with OperatorHarness(OPERATOR, api.config, allow_loopback_brokers=True) as harness:
        metrics = {"podMonitor": {"labels": {"release": "prometheus"}}}
        budget = {"minAvailable": 1}
        api.create(build(broker, metrics=metrics, podDisruptionBudget=budget))
        await harness.settled()
        assert api.get(POD_MONITOR, ORDERS)["metadata"]["labels"]["release"] == "prometheus"
        assert api.get(POD_DISRUPTION_BUDGET, ORDERS)["spec"]["minAvailable"] == 1

        nothing = {"metrics": {"podMonitor": None}, "podDisruptionBudget": None}
        api.patch(PULSAR_CONSUMER, ORDERS, {"spec": nothing})
        await harness.settled()

    assert api.find(POD_MONITOR, ORDERS) is None
    assert api.find(POD_DISRUPTION_BUDGET, ORDERS) is None


# Seek and deletion.


async def test_seek_is_noted_then_done_once(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    seek = {"id": "again-1", "position": "Earliest"}
    api.create(build(broker, subscription={"seek": seek}))
    await harness.eventually(lambda: status(api).get("lastSeek", {}).get("outcome") == "Done")

    await harness.restart()
    await harness.settled()

    assert broker.topics["my-topic"].subscriptions["my-subscription"] == 100
    assert len([path for _, path, _ in broker.requests if "resetcursor" in path]) == 1
    assert status(api)["lastSeek"]["targetTime"] == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("refusal", [409, 503])
async def test_seek_outlasts_a_broker_that_cannot_do_it_now(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker, refusal: int
) -> None:
    """Found by the sweep: a seek failed for good as the topic moved to another broker."""
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    broker.status = refusal
    seek = {"id": "again-1", "position": "Earliest"}
    api.create(build(broker, subscription={"seek": seek}))
    await harness.eventually(lambda: any("resetcursor" in path for _, path, _ in broker.requests))
    await harness.settled()
    assert status(api)["lastSeek"]["outcome"] == "Pending"

    broker.status = 0
    api.patch(PULSAR_CONSUMER, ORDERS, {"metadata": {"annotations": {"look": "again"}}})

    await harness.eventually(lambda: status(api)["lastSeek"]["outcome"] == "Done")
    assert broker.topics["my-topic"].subscriptions["my-subscription"] == 100


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
    await harness.settled()

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
    await harness.settled()
    assert not api.get(PULSAR_CONSUMER, ORDERS)["metadata"].get("finalizers")

    api.delete(PULSAR_CONSUMER, ORDERS)
    await harness.settled()

    assert broker.topics["my-topic"].subscriptions == {"my-subscription": 5}
