"""Consumers follow their backlog, over HTTP."""

from __future__ import annotations

from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.outcome import writes_of_the_operator
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.controller import OPERATOR
from operators.pulsarconsumer.recorded_broker import RecordedBroker
from operators.pulsarconsumer.resources.scalers import (
    HORIZONTAL_POD_AUTOSCALER,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
)
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.shown import (
    ORDERS,
    build,
    condition,
    run,
    status,
    wanted,
)


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
    await harness.eventually(lambda: status(api).get("autoscaling", {}).get("desiredReplicas") == 5)
    broker.topics["my-topic"].subscriptions["my-subscription"] = 0

    await harness.eventually(lambda: wanted(api) == 0)


async def test_settled_engine_is_silent_also_after_a_restart(
    api: FakeApi, broker: RecordedBroker
) -> None:
    broker.topics["my-topic"].subscriptions["my-subscription"] = 250
    scaling = {"maxReplicas": 5, "pollSeconds": 3600}
    async with OperatorHarness(OPERATOR, api.config, allow_loopback_brokers=True) as harness:
        api.create(build(broker, replicas=None, autoscaling=scaling))
        await harness.converged()
        run(api)
        await harness.converged()
        assert wanted(api) == 3

        mark = api.mark()
        await harness.restart()
        await harness.converged()
        for _ in range(3):
            api.patch(PULSAR_CONSUMER, ORDERS, {"metadata": {"annotations": {"touched": "yes"}}})
            await harness.converged()

        assert writes_of_the_operator(api, mark) == []


async def test_hpa_is_made_and_goes_with_the_engine(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker, autoscaling={"engine": "HPA", "minReplicas": 1, "maxReplicas": 3}))
    await harness.converged()
    target = api.get(HORIZONTAL_POD_AUTOSCALER, ORDERS)["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("PulsarConsumer", "orders")
    assert wanted(api) == 2

    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"autoscaling": None}})
    await harness.converged()

    assert api.find(HORIZONTAL_POD_AUTOSCALER, ORDERS) is None
    assert condition(api, "ScalingActive") == ("None", "None")


async def test_missing_keda_is_told_and_used_where_it_is(api: FakeApi) -> None:
    scaling = {"engine": "KEDA", "maxReplicas": 3}
    login = {"type": "Token", "token": {"secretKeyRef": {"name": "login", "key": "token"}}}
    async with OperatorHarness(OPERATOR, api.config, poll_seconds=0) as harness:
        api.create(build_manifest(autoscaling=scaling, authentication=login))
        await harness.converged()
        assert condition(api, "ScalingActive") == ("False", Reason.ENGINE_MISSING)
        assert wanted(api) == 2

        for kind in (SCALED_OBJECT, TRIGGER_AUTHENTICATION):
            api.register(build_loose_crd(kind, None, ()))
        await harness.restart()
        await harness.converged()

    trigger = api.get(SCALED_OBJECT, ORDERS)["spec"]["triggers"][0]
    assert trigger["metadata"]["topic"] == "persistent://public/default/my-topic"
    assert trigger["authenticationRef"] == {"name": "orders"}
    assert api.get(TRIGGER_AUTHENTICATION, ORDERS)["spec"]["secretTargetRef"][0]["name"] == "login"
