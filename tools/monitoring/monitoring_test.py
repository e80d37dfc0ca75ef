"""Prometheus of the demo: its configuration, what it may read, and what is recorded of it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.cluster.errors import ToolError
from tools.cluster.progress import open_progress
from tools.cluster.prometheus import ensure_prometheus
from tools.monitoring.deploy import read_charts
from tools.monitoring.manifests import build_config, build_grafana, build_prometheus
from tools.monitoring.record import record_panels, render_legend

RULE = {"spec": {"groups": [{"name": "a", "rules": [{"alert": "Down", "expr": "up == 0"}]}]}}
TIMES = {"start": 100, "end": 120, "step": 10}


def test_prometheus_accepts_the_configuration(tmp_path: Path) -> None:
    try:
        promtool = ensure_prometheus() / "promtool"
    except (OSError, ToolError) as err:
        pytest.skip(f"promtool is not available: {err}")
    (config,) = (
        one["data"]
        for one in build_prometheus("image", "shop", ["podset"], [RULE])
        if one["kind"] == "ConfigMap"
    )
    rules = tmp_path / "rules.yml"
    rules.write_text(config["rules.yml"])
    text = config["prometheus.yml"].replace("/etc/prometheus/rules.yml", str(rules))
    (tmp_path / "prometheus.yml").write_text(text)

    command = [str(promtool), "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_and_dashboards_come_from_the_charts() -> None:
    found = read_charts(["podset"], "shop", open_progress("test"))

    assert [rule["metadata"]["name"] for rule in found.rules] == ["podset"]
    uids = {json.loads(text)["uid"] for text in found.dashboards.values()}
    assert uids == {"slipway-podset", "slipway-operators"}


def test_prometheus_has_no_permissions_and_the_labels_of_a_service_monitor() -> None:
    manifests = build_prometheus("image", "shop", ["podset", "volumes"], [])
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    jobs = build_config("shop", ["podset", "volumes"])["scrape_configs"]
    labels = {
        (job["job_name"], rule["target_label"], rule.get("replacement"))
        for job in jobs
        for rule in job["relabel_configs"]
    }
    headless = {
        one["metadata"]["name"]: one["spec"]["selector"]
        for one in manifests
        if one["kind"] == "Service" and one["spec"].get("clusterIP") == "None"
    }

    assert {one["kind"] for one in manifests} == {"Service", "ConfigMap", "Deployment"}
    assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert {("podset", "namespace", "shop"), ("volumes", "namespace", "shop")} <= labels
    for job in jobs:
        (name,) = job["dns_sd_configs"][0]["names"]
        service, _, domain = name.partition(".")
        assert domain == "shop.svc"
        assert headless[service]["app.kubernetes.io/name"] == job["job_name"]


def test_grafana_has_no_permissions_and_shows_every_dashboard() -> None:
    manifests = build_grafana("image", {"podset.json": "{}", "slipway-operators.json": "{}"})
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    mounted = {
        volume["configMap"]["name"]: mount["mountPath"]
        for volume in pod["volumes"]
        for mount in pod["containers"][0]["volumeMounts"]
        if volume["name"] == mount["name"] and "configMap" in volume
    }

    assert pod["automountServiceAccountToken"] is False
    assert mounted["slipway-grafana-dashboards"] == "/dashboards"
    assert {"podset.json", "slipway-operators.json"} in [
        set(one["data"]) for one in manifests if one["kind"] == "ConfigMap"
    ]


@pytest.fixture
def prometheus() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a result that the test sets, and return the address and the result."""
    result: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": {"result": result}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", result
    server.shutdown()
    thread.join()
    server.server_close()


def dashboard() -> dict[str, Any]:
    panel = {
        "title": "Pods",
        "type": "timeseries",
        "fieldConfig": {"defaults": {"unit": "short"}},
        "targets": [{"expr": "pods", "legendFormat": "{{job}} {{missing}}"}],
    }
    return {"panels": [{"type": "row", "title": "Row"}, panel]}


def test_values_of_panels_are_recorded(
    prometheus: tuple[str, list[dict[str, Any]]],
) -> None:
    url, result = prometheus
    result.append({"metric": {"job": "podset"}, "values": [[100, "1"], [120, "2.00001"]]})

    (panel,) = record_panels(dashboard(), url, {}, TIMES)

    assert panel["series"] == {"podset": [1.0, None, 2.0]}


@pytest.mark.parametrize(
    ("answer", "message"),
    [([], "has no value"), ([{"metric": {}, "values": [[100, "NaN"]]}], "has NaN")],
)
def test_panel_without_a_number_is_refused(
    prometheus: tuple[str, list[dict[str, Any]]], answer: list[dict[str, Any]], message: str
) -> None:
    url, result = prometheus
    result.extend(answer)

    with pytest.raises(ToolError, match=message):
        list(record_panels(dashboard(), url, {}, TIMES))


def test_legend_names_labels() -> None:
    assert render_legend("{{job}} p50", {"job": "podset"}) == "podset p50"
    assert render_legend("", {"job": "podset"}) == ""
