"""Tests of charts whose CRDs have a conversion, on a copy of a chart that has a webhook."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.project.render import render_project
from libs.common.project.sources import OperatorSource
from libs.common.testing import widget_versions
from libs.common.testing.helm import CHARTS, HelmError, render_chart
from libs.common.testing.widget import Settings

CRD_NAME = "prometheusjmxexporters.banzaicloud.com"
CONVERSION = {
    "name": CRD_NAME,
    "path": f"/convert/{CRD_NAME}",
    "group": "banzaicloud.com",
    "plural": "prometheusjmxexporters",
}


@pytest.fixture
def chart(tmp_path: Path) -> str:
    """Copy a chart, and let its only webhook be a conversion; returns its path from the charts."""
    copy = tmp_path / "jmxexporter"
    shutil.copytree(CHARTS / "jmxexporter", copy)
    text = fastyaml.dump({"conversions": [CONVERSION]})
    (copy / "files" / "webhooks.yaml").write_text(text)
    return os.path.relpath(copy, CHARTS)


def render(chart: str, *, webhooks: bool = True, **values: Any) -> dict[str, Manifest]:
    given: Mapping[str, Any] = {"settings": {"webhooks": webhooks}, **values}
    objects = render_chart(chart, given, release="jmxexporter", namespace="team-a")
    return {f"{each['kind']} {each['metadata']['name']}": each for each in objects}


def list_rules(objects: Mapping[str, Manifest]) -> list[Manifest]:
    (name,) = (name for name in objects if name.startswith("ClusterRole ") and "webhook" in name)
    rules: list[Manifest] = objects[name]["rules"]
    return rules


def test_crd_calls_the_service_of_the_operator(chart: str) -> None:
    objects = render(chart)

    conversion = objects[f"CustomResourceDefinition {CRD_NAME}"]["spec"]["conversion"]
    service = {
        "namespace": "team-a",
        "name": "jmxexporter-webhook",
        "port": 443,
        "path": CONVERSION["path"],
    }
    # An upgrade keeps the CA bundle only because the chart does not render one.
    config = {"service": service}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": config}
    assert conversion == {"strategy": "Webhook", "webhook": webhook}
    assert "Secret jmxexporter-webhook" in objects
    assert not [name for name in objects if name.startswith("MutatingWebhookConfiguration")]


def test_service_reaches_replicas_that_are_not_ready(chart: str) -> None:
    service = render(chart)["Service jmxexporter-webhook"]

    assert service["spec"]["publishNotReadyAddresses"] is True


def test_operator_can_change_this_crd_and_no_other(chart: str) -> None:
    rules = list_rules(render(chart, watch={"namespaces": ["team-a"]}))

    assert rules == [
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": [CRD_NAME],
            "verbs": ["get", "patch"],
        }
    ]


def test_operator_that_watches_all_namespaces_can_migrate(chart: str) -> None:
    rules = list_rules(render(chart, watch={"clusterWide": True}))

    granted = {(rule["resources"][0], *rule["verbs"]) for rule in rules}
    assert granted == {
        ("customresourcedefinitions", "get", "patch"),
        ("customresourcedefinitions/status", "patch"),
        ("prometheusjmxexporters", "list", "patch"),
    }


def test_conversion_cannot_be_disabled(chart: str) -> None:
    with pytest.raises(HelmError, match=rf"settings\.webhooks: must be true.*{CRD_NAME}"):
        render(chart, webhooks=False)


def test_conversion_is_written_into_the_chart_of_a_standalone_project() -> None:
    conversion = widget_versions.CONVERSION
    source = OperatorSource(
        id="widget",
        resources=conversion.models,
        rules=(),
        settings=Settings,
        conversions=(conversion,),
        code=Path(),
        chart=Path("chart"),
        generator="test",
    )

    files = render_project(source, version="0.1.0", wheels=False)

    declared = fastyaml.load(files[Path("chart", "files", "webhooks.yaml")])
    assert declared["conversions"] == [conversion.to_chart()]
    assert "slipway-operators[webhooks]" in files[Path("Containerfile")]
