"""Rules of PrometheusJmxExporter on a real API server, which alone evaluates CEL."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.errors import Invalid
from libs.common.testing.serving import serve
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.samples import build_exporter

pytestmark = pytest.mark.apiserver

EXPRESSION = {"key": "app", "operator": "Exists"}


async def create(client: Client, namespace: str, spec: dict[str, Any]) -> None:
    manifest = build_exporter(f"jmx-{secrets.token_hex(3)}", **spec)
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"] = {name: held for name, held in manifest["spec"].items() if held is not None}
    await client.create(PROMETHEUS_JMX_EXPORTER, manifest)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"labelSelector": None, "selector": {"matchExpressions": [EXPRESSION]}},
        {"config": {"preset": "Kafka"}},
        {"tls": {"secretName": "cert"}, "basicAuth": {"secretName": "login"}},
        {"podMonitor": {"relabelings": [{"targetLabel": "__tmp_a"}, {"targetLabel": "zone"}]}},
        {"service": {"monitor": {"metricRelabelings": [{"targetLabel": "__name__"}]}}},
    ],
    ids=str,
)
async def test_good_spec_is_taken(
    kube_client: Client, kube_namespace: str, spec: dict[str, Any]
) -> None:
    await serve(kube_client, PrometheusJmxExporter)

    await create(kube_client, kube_namespace, spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"labelSelector": None}, "exactly one of labelSelector and selector"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "exactly one of labelSelector and selector"),
        ({"labelSelector": None, "selector": {}}, "every pod of the namespace"),
        ({"config": {}}, "exactly one of configMapName and preset"),
        ({"config": {"preset": "Kafka", "configMapName": "a"}}, "exactly one of configMapName"),
        ({"tls": {"secretName": "cert"}, "startup": "NewPods"}, "need startup Never"),
        ({"path": "/-/config"}, "reserved"),
        ({"podMonitor": {"relabelings": [{"targetLabel": "__address__"}]}}, "must not begin"),
        ({"service": {"monitor": {"relabelings": [{"action": "labelmap"}]}}}, "labelmap"),
        ({"podMonitor": {"intervalSeconds": 5, "scrapeTimeoutSeconds": 6}}, "at most"),
    ],
    ids=str,
)
async def test_bad_spec_is_refused_with_its_cause(
    kube_client: Client, kube_namespace: str, spec: dict[str, Any], words: str
) -> None:
    await serve(kube_client, PrometheusJmxExporter)

    with pytest.raises(Invalid, match=words):
        await create(kube_client, kube_namespace, spec)
