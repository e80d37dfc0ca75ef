"""The jmxexporter operator withstands what every operator must."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from libs.common.crd import build_crd
from libs.common.kinds import POD, Key, Manifest, is_deleting
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.outcome import Run
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.injector.messages import Action
from operators.jmxexporter.pods import Pod
from operators.jmxexporter.rbac import RULES
from operators.jmxexporter.samples import (
    build_config_map,
    build_exporter,
    build_pod,
    run_injectors,
)

LEAVING = Key("default", "leaving")


def build_objects() -> list[Manifest]:
    """Build an exporter that stays, and one that is deleted once its pod is served."""
    return [
        build_exporter(),
        build_exporter("leaving", labelSelector={"app": "cart"}),
    ]


def build_world() -> list[Manifest]:
    """Build what is there before: a configuration and pods."""
    return [
        build_config_map(),
        build_pod(),
        build_pod("cart-0", labels={"app": "cart"}, annotations={"mine": "1"}),
    ]


def drive(api: FakeApi) -> None:
    """Run injectors, and delete the second exporter once its pod is served."""
    run_injectors(api)
    leaving = api.find(PROMETHEUS_JMX_EXPORTER, LEAVING)
    status = (leaving or {}).get("status") or {}
    if leaving is not None and status.get("instrumentedPods") and not is_deleting(leaving):
        api.delete(PROMETHEUS_JMX_EXPORTER, LEAVING)


class TestJmxExporterConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=(build_crd(PrometheusJmxExporter),),
        objects=build_objects,
        change={"spec": {"port": 9500}},
        children=(POD,),
        rules=RULES,
        world=build_world,
        drive=drive,
    )

    async def test_child_deleted_in_a_gap_comes_back(self) -> None:
        """Pods are the user's; nobody makes them anew here."""
        pytest.skip("the operator makes no objects, it changes pods of others")

    async def _apply_again(self, harness: object, manifest: Manifest) -> None:
        if manifest["metadata"]["name"] != LEAVING.name:
            await super()._apply_again(harness, manifest)  # type: ignore[arg-type] # As the base has it.

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the outcome: what pods have been through, without names made of UIDs."""
        run = super().outcome(api, mark)
        for manifest in api.objects(POD):
            actions = [each.request.action for each in Pod.parse(manifest).runs]
            assert actions.count(Action.STOP) <= 1, "stopped twice"
            assert len(actions) <= 3, actions
        return replace(run, state={name: _blur(held) for name, held in run.state.items()})


def _blur[T](value: T) -> T:
    text = re.sub(r"jmx-inject-[0-9a-f]+", "jmx-inject", json.dumps(value))
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}", "uid", text)
    blurred: T = json.loads(text)
    return blurred
