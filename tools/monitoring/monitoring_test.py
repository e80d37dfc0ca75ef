"""Prometheus of the demo: its configuration, and what it may read."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools.cluster.errors import ToolError
from tools.cluster.progress import open_progress
from tools.cluster.prometheus import ensure_prometheus
from tools.monitoring.deploy import read_charts
from tools.monitoring.manifests import build_config, build_grafana, build_prometheus

RULE = {"spec": {"groups": [{"name": "a", "rules": [{"alert": "Down", "expr": "up == 0"}]}]}}


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
