"""A seek stops the consumers, waits for their pods, moves the subscription and starts them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import DEPLOYMENT, POD, Key, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.naming import selector_labels
from operators.pulsarconsumer.recorded_broker import RecordedBroker
from operators.pulsarconsumer.shown import ORDERS, build, condition, run, status, wanted

SEEK: Final = {"id": "again-1", "position": "Earliest"}
CONSUMER_POD: Final = Key("default", "orders-1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """List pods more often."""
    monkeypatch.setattr("operators.pulsarconsumer.seeker._POD_POLL", 0.05)
    monkeypatch.setattr("operators.pulsarconsumer.seeker._EFFECT_RETRY", 0.05)


@pytest.fixture(autouse=True)
async def rollouts(api: FakeApi) -> AsyncIterator[None]:
    """Play the controller of Deployments, for as long as a test runs."""

    async def follow() -> None:
        seen = None
        while True:
            deployment = api.find(DEPLOYMENT, ORDERS)
            if deployment is not None and deployment["metadata"].get("generation") != seen:
                seen = deployment["metadata"].get("generation")
                run(api)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(follow())
    yield
    task.cancel()


def resets(broker: RecordedBroker) -> int:
    """Return how often the subscription was moved, or was to be moved."""
    return len([path for _, path, _ in broker.requests if "resetcursor" in path])


def outcome(api: FakeApi) -> str:
    return str(status(api).get("lastSeek", {}).get("outcome"))


def message(api: FakeApi, name: str) -> str:
    found = find_condition(api.get(PULSAR_CONSUMER, ORDERS), name) or {}
    return str(found.get("message"))


def build_pod(phase: str = "Running") -> Manifest:
    """Build a pod of the Deployment."""
    pod = build_object(
        POD,
        CONSUMER_POD.name,
        CONSUMER_POD.namespace,
        metadata={"labels": selector_labels("orders"), "finalizers": ["example.com/draining"]},
        spec={"containers": [{"name": "consumer", "image": "app"}]},
    )
    return {**pod, "status": {"phase": phase}}


def request(api: FakeApi, **seek: str) -> None:
    """Request a seek of a PulsarConsumer that runs."""
    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"subscription": {"seek": {**SEEK, **seek}}}})


async def test_subscription_is_moved_only_when_no_pod_is_left_even_terminating(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    api.create(build(broker))
    await harness.eventually(lambda: condition(api, "Ready") == ("True", Reason.ALL_READY))
    api.create(build_pod())
    api.delete(POD, CONSUMER_POD)
    assert "deletionTimestamp" in api.get(POD, CONSUMER_POD)["metadata"]

    request(api)

    waiting = "waiting until 1 consumers have ended before the cursor is moved"
    await harness.eventually(lambda: message(api, "Progressing") == waiting)
    assert condition(api, "Progressing") == ("True", Reason.SEEKING)
    assert condition(api, "Ready") == ("False", Reason.SEEKING)
    await harness.restart()
    await harness.eventually(lambda: message(api, "Progressing") == waiting)
    assert (wanted(api), resets(broker), outcome(api)) == (0, 0, "Pending")

    api.patch(POD, CONSUMER_POD, {"metadata": {"finalizers": None}})

    await harness.eventually(lambda: wanted(api) == 2)
    assert (resets(broker), outcome(api)) == (1, "Done")
    await harness.eventually(lambda: condition(api, "Ready") == ("True", Reason.ALL_READY))


async def test_pod_that_has_failed_does_not_hold_the_seek(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    """Kubernetes keeps evicted pods of a Deployment, possibly for weeks."""
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    api.create(build_pod("Failed"))
    api.patch_status(POD, CONSUMER_POD, {"phase": "Failed"})

    api.create(build(broker, subscription={"seek": SEEK}))

    await harness.eventually(lambda: (wanted(api), outcome(api)) == (2, "Done"))


async def test_refused_seek_brings_the_consumers_back(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    """There is no subscription."""
    api.create(build(broker))
    await harness.eventually(lambda: condition(api, "Ready") == ("True", Reason.ALL_READY))

    request(api)

    await harness.eventually(lambda: (wanted(api), outcome(api)) == (2, "Failed"))
    assert resets(broker) == 1


async def test_paused_consumer_stays_paused_after_a_seek(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    api.create(build(broker, paused=True, subscription={"seek": SEEK}))

    await harness.eventually(lambda: condition(api, "Ready") == ("True", Reason.PAUSED))

    assert (wanted(api), outcome(api)) == (0, "Done")


async def test_seek_that_is_removed_is_cancelled(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    """A pod on a lost node may terminate indefinitely."""
    api.create(build_pod())
    api.create(build(broker, subscription={"seek": SEEK}))
    await harness.eventually(lambda: outcome(api) == "Pending" and wanted(api) == 0)

    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"subscription": {"seek": None}}})

    await harness.eventually(lambda: (wanted(api), outcome(api)) == (2, "Failed"))
    assert resets(broker) == 0


async def test_consumers_run_while_the_broker_does_not_respond(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    broker.status = 401
    api.create(build(broker, subscription={"seek": SEEK}))

    await harness.eventually(lambda: wanted(api) == 2)
    assert outcome(api) == "Pending"
    broker.status = 0

    await harness.eventually(lambda: (wanted(api), outcome(api)) == (2, "Done"))


async def test_seek_that_the_broker_refuses_for_too_long_fails(
    api: FakeApi,
    harness: OperatorHarness,
    broker: RecordedBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("operators.pulsarconsumer.seeker._MAX_REFUSAL", 0.2)
    monkeypatch.setattr("operators.pulsarconsumer.seeking._MAX_FAILURES", 1000)
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    broker.status = 409

    api.create(build(broker, subscription={"seek": SEEK}))

    await harness.eventually(lambda: (wanted(api), outcome(api)) == (2, "Failed"))


async def test_seek_is_noted_then_done_once(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    seek = {"id": "again-1", "position": "Earliest"}
    api.create(build(broker, subscription={"seek": seek}))
    await harness.eventually(lambda: status(api).get("lastSeek", {}).get("outcome") == "Done")

    await harness.restart()
    await harness.converged()

    assert broker.topics["my-topic"].subscriptions["my-subscription"] == 100
    assert len([path for _, path, _ in broker.requests if "resetcursor" in path]) == 1
    assert status(api)["lastSeek"]["targetTime"] == "1970-01-01T00:00:00Z"


async def test_seek_of_an_id_that_was_used_before_the_last_is_another_seek(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    """A user who changes from 1 to 2 and back to 1 wants the subscription moved three times."""
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    for id_ in ("1", "2", "1"):
        seek = {"id": id_, "position": "Earliest"}
        if id_ == "1" and api.find(PULSAR_CONSUMER, ORDERS) is None:
            api.create(build(broker, subscription={"seek": seek}))
        else:
            api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"subscription": {"seek": seek}}})

        def is_done(id_: str = id_) -> bool:
            last = status(api).get("lastSeek", {})
            return (last.get("id"), last.get("outcome")) == (id_, "Done")

        await harness.eventually(is_done)

    assert len([path for _, path, _ in broker.requests if "resetcursor" in path]) == 3


@pytest.mark.parametrize("refusal", [409, 503])
async def test_seek_outlasts_a_broker_that_cannot_do_it_now(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker, refusal: int
) -> None:
    """Found by the sweep: a seek failed permanently when the topic moved to another broker."""
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0
    broker.status = refusal
    seek = {"id": "again-1", "position": "Earliest"}
    api.create(build(broker, subscription={"seek": seek}))
    await harness.eventually(lambda: any("resetcursor" in path for _, path, _ in broker.requests))
    await harness.converged()
    assert status(api)["lastSeek"]["outcome"] == "Pending"

    broker.status = 0
    api.patch(PULSAR_CONSUMER, ORDERS, {"metadata": {"annotations": {"look": "again"}}})

    await harness.eventually(lambda: status(api)["lastSeek"]["outcome"] == "Done")
    assert broker.topics["my-topic"].subscriptions["my-subscription"] == 100
