"""The jmxexporter operator withstands what every operator must."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from libs.common.crd import build_crd
from libs.common.kinds import ENDPOINT_SLICE, POD, SERVICE, Manifest
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.outcome import Run
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter
from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.pods import Pod
from operators.jmxexporter.samples import (
    build_config_map,
    build_exporter,
    build_pod,
    run_injectors,
)


def build_objects() -> list[Manifest]:
    """Build an exporter to whose pods a Service leads."""
    return [build_exporter(service={})]


def build_initial_objects() -> list[Manifest]:
    """Build the initial objects: a configuration and a pod."""
    return [build_config_map(), build_pod()]


class TestJmxExporterConformance(OperatorConformance):
    subject = Subject(
        OPERATOR,
        crds=(build_crd(PrometheusJmxExporter),),
        objects=build_objects,
        change={"spec": {"port": 9500}},
        children=(POD, SERVICE, ENDPOINT_SLICE),
        foreign=(POD,),
        outliving=(POD,),
        initial_objects=build_initial_objects,
        drive=run_injectors,
    )

    def outcome(self, api: FakeApi, mark: int) -> Run:
        """Take down the outcome: what pods have been through, without names made of UIDs."""
        run = super().outcome(api, mark)
        for manifest in api.objects(POD):
            runs = Pod.parse(manifest).runs
            assert len(runs) <= 2, "one for each port that was asked for"
        return replace(run, state={name: _blur(held) for name, held in run.state.items()})


def _blur[T](value: T) -> T:
    text = re.sub(r"jmx-inject-[0-9a-f]+", "jmx-inject", json.dumps(value))
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}", "uid", text)
    text = re.sub(r'((?:not_after|created)\\+": ?)\d+', r"\g<1>0", text)
    blurred: T = json.loads(text)
    return blurred
