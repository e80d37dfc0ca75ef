"""An application with a JVM in a cluster, and a look at its metrics as Prometheus has it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from libs.common.kinds import POD, Manifest, build_object
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import Progress
from tools.images.build import ensure_base
from tools.jvm.image import SAMPLE, ensure_sample_image

MANIFEST: Final = Path(__file__).with_name("application.yaml")
"""A Deployment `dummyapp`."""
SELECTOR: Final = "app=dummyapp"
"""Labels of its pods."""

_READY_SECONDS: Final = 120


def deploy_to_kind(cluster: KindCluster, namespace: str, progress: Progress) -> None:
    """Build the application, load it into a kind cluster, and run it there.

    Raises:
        ToolError: The image cannot be built, or the application did not become ready.
    """
    docker = ensure_docker(progress, cluster.cache)
    ensure_sample_image(docker, ensure_base(docker, progress), progress, cluster.cache)
    cluster.load([SAMPLE], progress)
    kubectl = cluster.kubectl()
    with progress.step("An application with a JVM, which knows nothing of Prometheus", "10 s"):
        kubectl.read("apply", "--namespace", namespace, "--filename", MANIFEST)
        waiting = ["rollout", "status", "deployment/dummyapp", f"--timeout={_READY_SECONDS}s"]
        kubectl.read(*waiting, "--namespace", namespace, seconds=_READY_SECONDS + 10)


def scrape(kubectl: Kubectl, namespace: str, pod: str, port: int) -> list[Metric]:
    """Scrape a pod through the API server, and parse the response as Prometheus does.

    Raises:
        ToolError: There is no response.
        ValueError: The response is not in Prometheus' text format.
    """
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics"
    return list(text_string_to_metric_families(kubectl.read("get", "--raw", path)))


def render_metrics(families: Iterable[Metric], names: Iterable[str]) -> list[str]:
    """Render the samples of some metrics, one a line."""
    by_name = {family.name: family for family in families}
    return [
        f"{sample.name}{_render_labels(sample.labels)} {sample.value:g}"
        for name in names
        if name in by_name
        for sample in by_name[name].samples
    ]


def _render_labels(labels: dict[str, str]) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def build_pod(namespace: str, name: str) -> Manifest:
    """Build one pod of the application, as the Deployment has it."""
    template: Manifest = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]
    return build_object(
        POD, name, namespace, metadata={**template["metadata"]}, spec=template["spec"]
    )
