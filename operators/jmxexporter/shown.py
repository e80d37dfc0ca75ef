"""Helpers for tests with a fake API and a fake kubelet: read exporters, pods and injectors."""

from __future__ import annotations

from typing import Any

from libs.common.conditions import find_condition
from libs.common.kinds import POD, Key, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.jmxexporter.api.v1alpha1 import (
    PROMETHEUS_JMX_EXPORTER,
)
from operators.jmxexporter.injector.messages import Report, Request, State
from operators.jmxexporter.pods import InjectorRun, Pod
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.samples import (
    SHOP,
    Answer,
    answer_well,
    build_report,
    run_injectors,
)

JMX = Key("default", "jmx")
"""The exporter of most tests."""


OTHER = "rules:\n- pattern: other\n"
"""Another configuration."""


async def play(api: FakeApi, harness: OperatorHarness, answer: Answer = answer_well) -> None:
    """Let operator and kubelet react to each other until neither changes anything."""
    while True:
        await harness.converged()
        version = api.store.version
        run_injectors(api, answer)
        if api.store.version == version:
            return


def status(api: FakeApi, key: Key = JMX) -> Manifest:
    """Return the status of an exporter."""
    found: Manifest = api.get(PROMETHEUS_JMX_EXPORTER, key)["status"]
    return found


def condition(api: FakeApi, name: str = "Ready", key: Key = JMX) -> tuple[str, str]:
    """Return status and reason of a condition of an exporter."""
    found = find_condition(api.get(PROMETHEUS_JMX_EXPORTER, key), name)
    assert found is not None
    return found["status"], found["reason"]


def runs(api: FakeApi, key: Key = SHOP) -> list[InjectorRun]:
    """Return the injectors of a pod."""
    return list(Pod.parse(api.get(POD, key)).runs)


def refuse(reason: Reason, **rest: Any) -> Answer:
    """Return a response of injectors that refuses all JVMs for a reason."""

    def answer(request: Request, run: InjectorRun) -> Report:
        return Report((build_report(request, run, State.REFUSED, reason),))

    return answer
