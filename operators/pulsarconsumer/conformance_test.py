"""The pulsarconsumer operator withstands what every operator must, with a broker and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from libs.common.crd import build_crd
from libs.common.kinds import DEPLOYMENT, Key, Manifest, is_deleting, key_of
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.controller import OPERATOR
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.samples import build_manifest, build_rollout

BROKER: Final = RecordedBroker()
SETTINGS: Final = {"allow_loopback_brokers": True, "poll_seconds": 3600}
HORIZON: Final = 60.0
"""Seconds; a pending response of the broker triggers a reconcile sooner, a poll later."""
LATE: Final = 0.3
"""Seconds; every reconcile stops waiting for the broker before that."""
ENDING: Final = Key("default", "ending")


@pytest.fixture(autouse=True)
def broker() -> Iterator[None]:
    """Run the broker, with what waits in it as it was at the start."""
    with BROKER:
        BROKER.topics = {"my-topic": RecordedTopic(subscriptions={"my-subscription": 150})}
        BROKER.delay = 0.0
        yield


def run_deployments(api: FakeApi) -> None:
    """Do what the controller of Deployments does."""
    for deployment in api.objects(DEPLOYMENT):
        status = build_rollout(deployment)
        if deployment.get("status") != status:
            api.patch_status(DEPLOYMENT, key_of(deployment), status)


def build_plain() -> list[Manifest]:
    """Build what the predecessor's manifests say; nobody answers for the broker."""
    return [
        build_manifest(
            serverAddress="pulsar://127.0.0.1:1",
            adminAddress="http://127.0.0.1:1",
        )
    ]


def build_ending() -> list[Manifest]:
    """Build one that follows its backlog, and one whose subscription goes with it."""
    return [
        build_manifest(
            adminAddress=BROKER.address,
            replicas=None,
            autoscaling={"maxReplicas": 5, "pollSeconds": 3600},
        ),
        build_manifest(
            "ending",
            adminAddress=BROKER.address,
            topic="other",
            subscription={"create": "Operator", "deletionPolicy": "Delete"},
        ),
    ]


def run_and_end(api: FakeApi) -> None:
    """Run the Deployments, and delete the second PulsarConsumer once it has one."""
    run_deployments(api)
    consumer = api.find(PULSAR_CONSUMER, ENDING)
    deployed = api.find(DEPLOYMENT, ENDING) is not None
    if consumer is not None and deployed and not is_deleting(consumer):
        api.delete(PULSAR_CONSUMER, ENDING)


class TestConsumerWithoutBrokerConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=(build_crd(PulsarConsumer),),
        objects=build_plain,
        change={"spec": {"replicas": 3, "topic": "other"}},
        children=(DEPLOYMENT,),
        drive=run_deployments,
        settings=SETTINGS,
        horizon=HORIZON,
    )


class TestEndingConsumerConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=(build_crd(PulsarConsumer),),
        objects=build_ending,
        change={"spec": {"autoscaling": {"maxReplicas": 1}}},
        children=(DEPLOYMENT,),
        drive=run_and_end,
        settings=SETTINGS,
        alone=True,
        horizon=HORIZON,
    )

    async def test_no_writes_when_converged(self) -> None:
        """A re-apply recreates a consumer that has ended, so it causes writes."""
        pytest.skip("the other subject shows the silence; scaling_test.py that of the engine")

    async def test_late_answers_change_nothing(self) -> None:
        """If the broker is too slow for a reconcile, later reconciles reach the same state."""
        expected = await self.run()
        assert f"PulsarConsumer {ENDING}" not in expected.state, "it has ended"

        BROKER.delay = LATE
        self._assert_same(await self.run(), expected, "late answers")
