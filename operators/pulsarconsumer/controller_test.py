"""The pulsarconsumer operator against the fake API, with a scripted broker."""

from __future__ import annotations

from libs.common.kinds import (
    DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    build_object,
)
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.controller import OPERATOR
from operators.pulsarconsumer.recorded_broker import RecordedBroker
from operators.pulsarconsumer.resources.policies import POD_MONITOR
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.shown import (
    ORDERS,
    build,
    condition,
    run,
    status,
    template,
    wanted,
)


async def test_kept_manifest_gets_its_consumers_though_no_broker_answers(
    api: FakeApi, harness: OperatorHarness
) -> None:
    # Without adminAddress, this would query port 8080, on which something may listen.
    address = {"serverAddress": "pulsar://127.0.0.1:1", "adminAddress": "http://127.0.0.1:1"}
    api.create(build_manifest(**address))
    await harness.converged()
    run(api)
    await harness.converged()

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
    await harness.converged()
    before = template(api)

    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"replicas": 5}})
    await harness.converged()
    assert (wanted(api), template(api)) == (5, before)
    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"topic": "other"}})
    await harness.converged()

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


async def test_consumers_that_an_orphan_deletion_left_are_adopted_without_a_restart(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker))
    await harness.converged()
    before = api.get(DEPLOYMENT, ORDERS)
    api.delete(PULSAR_CONSUMER, ORDERS, propagation="Orphan")
    await harness.eventually(lambda: api.find(PULSAR_CONSUMER, ORDERS) is None)
    assert not api.get(DEPLOYMENT, ORDERS)["metadata"].get("ownerReferences")

    created = api.create(build(broker))
    await harness.converged()

    after = api.get(DEPLOYMENT, ORDERS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [owner["uid"] for owner in after["metadata"]["ownerReferences"]] == [
        created["metadata"]["uid"]
    ]
    assert after["spec"]["template"] == before["spec"]["template"]


async def test_drift_of_the_deployment_is_corrected(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker))
    await harness.converged()

    api.patch(DEPLOYMENT, ORDERS, {"spec": {"replicas": 9}})
    await harness.converged()

    assert wanted(api) == 2


async def test_paused_ends_all_consumers(
    api: FakeApi, harness: OperatorHarness, broker: RecordedBroker
) -> None:
    api.create(build(broker, paused=True))
    await harness.converged()
    run(api)
    await harness.converged()
    assert wanted(api) == 0
    assert condition(api, "Paused") == ("True", Reason.PAUSED)
    assert condition(api, "Ready") == ("True", Reason.PAUSED)

    api.patch(PULSAR_CONSUMER, ORDERS, {"spec": {"paused": False}})
    await harness.converged()

    assert wanted(api) == 2
    assert condition(api, "Paused") == ("None", "None")


async def test_budget_and_monitor_come_and_go(api: FakeApi, broker: RecordedBroker) -> None:
    api.register(build_loose_crd(POD_MONITOR, None, ()))
    async with OperatorHarness(OPERATOR, api.config, allow_loopback_brokers=True) as harness:
        metrics = {"podMonitor": {"labels": {"release": "prometheus"}}}
        budget = {"minAvailable": 1}
        api.create(build(broker, metrics=metrics, podDisruptionBudget=budget))
        await harness.converged()
        assert api.get(POD_MONITOR, ORDERS)["metadata"]["labels"]["release"] == "prometheus"
        assert api.get(POD_DISRUPTION_BUDGET, ORDERS)["spec"]["minAvailable"] == 1

        nothing = {"metrics": {"podMonitor": None}, "podDisruptionBudget": None}
        api.patch(PULSAR_CONSUMER, ORDERS, {"spec": nothing})
        await harness.converged()

    assert api.find(POD_MONITOR, ORDERS) is None
    assert api.find(POD_DISRUPTION_BUDGET, ORDERS) is None
