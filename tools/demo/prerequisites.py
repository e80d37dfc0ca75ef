"""What operators of the demo need around them, and what is done with them once they are Ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tools.cluster.progress import Progress
from tools.demo.consumers import send_to_consumers
from tools.dev.options import Target
from tools.jvm import cluster as jvm
from tools.pulsar.cluster import deploy_to_kind

_CONSUMER: Final = "pulsarconsumer"
_EXPORTER: Final = "jmxexporter"
_SHOWN: Final = (
    "shop_orders_count",
    "jvm_threads_current",
    "jmx_scrape_error",
    "jmx_guard_config_info",
)
"""Metrics of the application, of its JVM, and of the exporter."""


def prepare(operators: Sequence[str], target: Target, namespace: str, progress: Progress) -> None:
    """Bring up what the examples refer to; a cluster of the user's own has it already.

    Raises:
        ToolError: It could not be made.
    """
    if _CONSUMER in operators and target.kind:
        deploy_to_kind(target.kind, namespace, progress)
    if _EXPORTER in operators and target.kind:
        jvm.deploy_to_kind(target.kind, namespace, progress)


def create_objects(
    operators: Sequence[str], target: Target, namespace: str, progress: Progress
) -> list[tuple[str, str]]:
    """Give what is Ready something to do, and return what to look at: commands and why.

    Raises:
        ToolError: It could not be done.
    """
    if not target.kind:
        return []
    looks: list[tuple[str, str]] = []
    if _CONSUMER in operators:
        looks += _consume(target, namespace, progress)
    if _EXPORTER in operators:
        looks += _scrape(target, namespace, progress)
    return looks


def _consume(target: Target, namespace: str, progress: Progress) -> list[tuple[str, str]]:
    lines = send_to_consumers(target.kubectl, namespace, progress)
    progress.say("Log line of a consumer for each message:")
    for line in lines:
        progress.say(f"  {line}")
    selector = "app.kubernetes.io/managed-by=pulsarconsumer"
    logs = f"./dev kubectl logs -l {selector} --tail 5{_flag(namespace)}"
    watch = f"./dev kubectl get pcon --watch{_flag(namespace)}"
    return [(logs, "log of the consumers"), (watch, "backlog and consumers")]


def _scrape(target: Target, namespace: str, progress: Progress) -> list[tuple[str, str]]:
    pods = target.kubectl.items("pods", "--namespace", namespace, "--selector", jvm.SELECTOR)
    pod = pods[0]["metadata"]
    port = int(pod["annotations"]["prometheus.io/port"])
    restarts = sum(status["restartCount"] for status in pods[0]["status"]["containerStatuses"])
    with progress.step(f"Scraping pod {pod['name']} at port {port}"):
        families = jvm.scrape(target.kubectl, namespace, pod["name"], port)
    progress.say(f"{len(families)} metrics of a JVM that was restarted {restarts} times, such as")
    for line in jvm.render_metrics(families, _SHOWN):
        progress.say(f"  {line}")
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['name']}:{port}/proxy/metrics"
    return [(f"./dev kubectl get --raw {path}", "all metrics of one JVM")]


def _flag(namespace: str) -> str:
    return "" if namespace == "default" else f" -n {namespace}"
