"""KEDA that stopped is noticed when messages wait."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.kinds import Key, Manifest
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.keda import KedaWatch
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.report import BrokerState, Report, TopicReport
from operators.pulsarconsumer.resources.scalers import SCALED_OBJECT
from operators.pulsarconsumer.samples import build_consumer

KEY = Key("default", "orders")
KEDA = {"engine": "KEDA", "activationBacklog": 10}


def parse(scaling: Manifest = KEDA, reason: str = "", **spec: Any) -> PulsarConsumer:
    manifest = build_consumer(autoscaling=scaling, **spec)
    if reason:
        condition = {
            "type": "ScalingActive",
            "status": "Unknown",
            "reason": reason,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        manifest["status"] = {"conditions": [condition]}
    return PulsarConsumer.parse(manifest)


def see(entries: int, active: str = "", retries: int = 0) -> Observed:
    report = Report((TopicReport("t", entries=entries),), retry=TopicReport("r", entries=retries))
    child = {"status": {"lastActiveTime": active} if active else {}}
    return Observed(children={SCALED_OBJECT: child}, broker_state=BrokerState(report))


def test_time_runs_while_messages_wait_and_keda_does_not_poll() -> None:
    watch = KedaWatch()

    assert watch.measure(KEY, parse(), see(10, "08:00"), 1000.0) == 0, "below the activation"
    assert watch.measure(KEY, parse(), see(11, "08:00"), 1010.0) == 0, "the wait begins"
    assert watch.measure(KEY, parse(), see(11, "08:00"), 1100.0) == 90
    assert watch.measure(KEY, parse(), see(11, "08:01"), 1110.0) == 0, "KEDA polled"
    assert watch.measure(KEY, parse(), see(11, "08:01"), 1130.0) == 20
    assert watch.measure(KEY, parse(), see(0, "08:01"), 1140.0) == 0
    assert watch.measure(KEY, parse(), see(0, "08:01", retries=11), 1150.0) == 0
    assert watch.measure(KEY, parse(), see(0, "08:01", retries=11), 1160.0) == 10


@pytest.mark.parametrize(
    ("consumer", "observed"),
    [
        (parse({"maxReplicas": 2}), see(11)),
        (parse(paused=True), see(11)),
        (parse(), Observed()),
    ],
    ids=["other engine", "paused", "broker unknown"],
)
def test_nothing_is_expected_of_keda_without_work_for_it(
    consumer: PulsarConsumer, observed: Observed
) -> None:
    watch = KedaWatch()
    watch.measure(KEY, consumer, observed, 1000.0)

    assert watch.measure(KEY, consumer, observed, 2000.0) == 0
    assert not watch.keys()


def test_new_process_continues_with_what_the_previous_process_found() -> None:
    silent = parse(reason=Reason.ENGINE_SILENT)
    watch = KedaWatch()

    assert watch.measure(KEY, silent, see(11, "08:00"), 1000.0) > 60
    assert watch.measure(KEY, silent, see(11, "08:01"), 1010.0) == 0, "KEDA polled"
    assert KedaWatch().measure(KEY, parse(reason=Reason.DELEGATED), see(11), 1000.0) == 0
