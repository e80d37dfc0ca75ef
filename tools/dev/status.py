"""The output of `./dev status`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from tools.cluster.binaries import find_kubectl
from tools.cluster.cache import Cache
from tools.cluster.docker import find_docker, own_daemon_pid
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl, is_ready, list_unready
from tools.dev.operators import list_operators
from tools.dev.options import render_up
from tools.kubevirt.state import State, find_state

_OK = "[green]✓[/green]"
_BAD = "[red]✗[/red]"
_NONE = "[dim]-[/dim]"


def render_status(name: str, kubeconfig: Path | None, context: str | None) -> Table:
    """Return the table without starting anything; the row of a missing part names the remedy."""
    cache = Cache()
    table = Table.grid(padding=(0, 2))
    own = bool(kubeconfig or context)
    cluster = KindCluster(name, cache)
    if own:
        kubectl = Kubectl(find_kubectl(cache), kubeconfig, context)
    else:
        table.add_row(*_docker_row(cache))
        if not cluster.kubeconfig.exists():
            table.add_row(_NONE, f"cluster {name}", f"does not exist: run {render_up(name)}")
            return table
        kubectl = cluster.kubectl()
    problem = kubectl.find_problem()
    if problem:
        hint = "check --kubeconfig and --context" if own else render_up(name)
        table.add_row(_BAD, "cluster" if own else f"cluster {name}", f"does not respond: {hint}")
        table.add_row("", "", escape(problem))
        return table
    table.add_row(*_cluster_row("cluster" if own else f"cluster {name}", kubectl))
    for node in kubectl.items("nodes"):
        table.add_row(*node_row(node))
    table.add_row(*kubevirt_row(find_state(kubectl)))
    for row in _operator_rows(kubectl):
        table.add_row(*row)
    return table


def node_row(node: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the row of one node."""
    info = node["status"]["nodeInfo"]
    ready = is_ready(node)
    text = f"{'ready' if ready else 'not ready'}, {info['kubeletVersion']}, {info['osImage']}"
    return (_OK if ready else _BAD, f"  node {node['metadata']['name']}", text)


def kubevirt_row(state: State) -> tuple[str, str, str]:
    """Return the row of KubeVirt and CDI."""
    if state.simulated:
        return (_OK, "  KubeVirt", "simulated")
    if not state.installed:
        hint = "./dev up --with kubevirt, or ./dev kubevirt-sim --deploy"
        return (_NONE, "  KubeVirt", f"not installed: {hint}")
    return (_OK if state.ready else _BAD, "  KubeVirt", state.describe())


def operator_row(operator: str, deployment: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the row of one installed operator."""
    wanted = deployment["spec"].get("replicas", 1)
    ready = deployment.get("status", {}).get("readyReplicas", 0)
    containers = deployment["spec"]["template"]["spec"]["containers"]
    where = f"namespace {deployment['metadata']['namespace']}"
    text = f"{ready}/{wanted} ready, {where}, {containers[0]['image']}"
    return (_OK if ready >= wanted else _BAD, f"  operator {operator}", text)


def _docker_row(cache: Cache) -> tuple[str, str, str]:
    docker = find_docker(cache)
    if docker is None:
        return (_NONE, "docker", "does not respond: ./dev up starts docker if possible")
    version = docker.read("version", "--format", "{{.Server.Version}}").strip()
    pid = own_daemon_pid(cache) if docker.host else None
    whose = f"private daemon, process {pid}" if pid else "your own"
    return (_OK, "docker", f"{version}, {whose}{f', {docker.host}' if docker.host else ''}")


def _cluster_row(title: str, kubectl: Kubectl) -> tuple[str, str, str]:
    version = kubectl.read("get", "--raw", "/version")
    system = kubectl.items("pods,deployments", "--namespace", "kube-system")
    unready = list_unready(system)
    git = next((part for part in version.split('"') if part.startswith("v1.")), "")
    detail = f"system pods not ready: {', '.join(unready)}" if unready else "system pods ready"
    return (_BAD if unready else _OK, title, f"Kubernetes {git}, {detail}")


def _operator_rows(kubectl: Kubectl) -> list[tuple[str, str, str]]:
    rows = []
    for operator in list_operators():
        try:
            label = f"app.kubernetes.io/name={operator},app.kubernetes.io/part-of=slipway"
            found = kubectl.items("deployments", "--all-namespaces", "--selector", label)
        except ToolError as err:
            return [(_BAD, "  operators", escape(str(err).splitlines()[0]))]
        rows += [operator_row(operator, deployment) for deployment in found]
        if not found:
            rows.append(
                (_NONE, f"  operator {operator}", f"not installed: ./dev install {operator}")
            )
    return rows
