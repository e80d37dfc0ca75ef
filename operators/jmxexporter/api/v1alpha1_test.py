"""The API of PrometheusJmxExporter."""

from __future__ import annotations

from pathlib import Path

import yaml

from libs.common.crd import lint_crd
from operators.jmxexporter.api import PrometheusJmxExporter

PREDECESSOR = """
apiVersion: banzaicloud.com/v1alpha1
kind: PrometheusJmxExporter
metadata: {name: example-prom-jmx-exp, namespace: default}
spec:
  labelSelector: {app: dummyapp}
  config: {configMapName: prometheus-jmx-exporter-config, configMapKey: config.yaml}
  port: 9400
"""


def test_api_follows_the_rules_of_the_house() -> None:
    assert lint_crd(PrometheusJmxExporter) == []


def test_manifest_of_the_predecessor_is_read() -> None:
    exporter = PrometheusJmxExporter.parse(yaml.safe_load(PREDECESSOR))

    assert exporter.spec.label_selector == {"app": "dummyapp"}
    assert exporter.spec.config.config_map_name == "prometheus-jmx-exporter-config"
    assert exporter.spec.ports == (9400, 9400)


def test_examples_are_read() -> None:
    for path in Path(__file__).parents[1].glob("examples/*.yaml"):
        for manifest in yaml.safe_load_all(path.read_text()):
            if manifest["kind"] == "PrometheusJmxExporter":
                manifest["metadata"]["namespace"] = "default"
                PrometheusJmxExporter.parse(manifest)
