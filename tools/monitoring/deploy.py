"""Run Prometheus, and Grafana if its image is available, beside the operators of a kind cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from libs.common import fastyaml
from tools.cluster.binaries import provide_tool
from tools.cluster.docker import ensure_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl, render_list
from tools.cluster.progress import Progress
from tools.dev.operators import chart_of
from tools.monitoring.images import GRAFANA, ensure_prometheus_image, find_grafana_image
from tools.monitoring.manifests import (
    GRAFANA_PORT,
    PROMETHEUS_PORT,
    build_grafana,
    build_prometheus,
)

_READY_SECONDS: Final = 180
_GRAPH: Final = urlencode(
    {
        "g0.expr": "sum by(controller)(rate(controller_runtime_reconcile_total[30s]))",
        "g0.tab": 0,
        "g0.range_input": "10m",
    },
    quote_via=quote,
)
"""The graph with which the page of Prometheus opens; version 3 redirects to its own page."""
_VALUES: Final = "prometheusRule.enabled=true,dashboard.enabled=true,image.registry=localhost"


@dataclass(slots=True)
class Monitoring:
    """What the charts of some operators offer to Prometheus and Grafana.

    Attributes:
        rules: Objects of kind PrometheusRule.
        dashboards: JSON by file name.
    """

    rules: list[dict[str, Any]] = field(default_factory=list)
    dashboards: dict[str, str] = field(default_factory=dict)


def read_charts(operators: Sequence[str], namespace: str, progress: Progress) -> Monitoring:
    """Render the alerts and dashboards of operators.

    Raises:
        ToolError: helm refuses a chart.
    """
    found = Monitoring()
    helm = str(provide_tool("helm", progress))
    for operator in operators:
        command = [helm, "template", operator, str(chart_of(operator)), "--namespace", namespace]
        command += ["--set", _VALUES, "--show-only=templates/operator.yaml"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolError(f"helm template {operator}: {done.stderr.strip()}")
        for manifest in fastyaml.load_all(done.stdout):
            if manifest["kind"] == "PrometheusRule":
                found.rules.append(manifest)
            if manifest["metadata"]["name"] == f"{operator}-dashboard":
                found.dashboards |= manifest["data"]
    return found


def deploy_to_kind(
    cluster: KindCluster, operators: Sequence[str], namespace: str, progress: Progress
) -> list[tuple[str, str]]:
    """Run Prometheus and Grafana, and return their pages: address and what it shows.

    Raises:
        ToolError: Prometheus cannot be had, or does not become ready.
    """
    docker = ensure_docker(progress, cluster.cache)
    with progress.step("Alerts and dashboards of the charts"):
        charts = read_charts(operators, namespace, progress)
    prometheus = ensure_prometheus_image(docker, progress)
    grafana = find_grafana_image(docker, progress)
    cluster.load([prometheus, *([grafana] if grafana else [])], progress)
    manifests = build_prometheus(prometheus, namespace, operators, charts.rules)
    if grafana:
        manifests += build_grafana(grafana, charts.dashboards)
    else:
        progress.say(f"Without Grafana: {GRAFANA} cannot be pulled.")
    kubectl = cluster.kubectl()
    with progress.step("Prometheus and Grafana" if grafana else "Prometheus", "20 s"):
        _apply(kubectl, namespace, manifests)
    address = find_node_address(kubectl)
    server = f"http://{address}:{PROMETHEUS_PORT}"
    # The pages of the targets have another path in Debian's version.
    pages = [
        (f"{server}/graph?{_GRAPH}", "Prometheus: reconciles of each controller, alerts, targets")
    ]
    if grafana:
        page = f"http://{address}:{GRAFANA_PORT}/d/slipway-operators"
        pages.insert(0, (page, "dashboards in Grafana"))
    return pages


def find_node_address(kubectl: Kubectl) -> str:
    """Return the address of the first node.

    Raises:
        ToolError: It has none.
    """
    for node in kubectl.items("nodes"):
        for address in node["status"]["addresses"]:
            if address["type"] == "InternalIP":
                return str(address["address"])
    raise ToolError("No node of the cluster has an address: run `./dev status`")


def _apply(kubectl: Kubectl, namespace: str, manifests: Sequence[dict[str, Any]]) -> None:
    stdin = render_list(manifests)
    # Dashboards are longer than an annotation may be.
    command = ["apply", "--namespace", namespace, "--server-side", "--force-conflicts"]
    kubectl.read(*command, "--filename", "-", stdin=stdin)
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            name = f"deployment/{manifest['metadata']['name']}"
            # Programs read their configuration when they start.
            kubectl.read("rollout", "restart", name, "--namespace", namespace)
            status = ["rollout", "status", name, f"--timeout={_READY_SECONDS}s"]
            kubectl.read(*status, "--namespace", namespace, seconds=_READY_SECONDS + 10)
