"""The rows of `./dev status`, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from lab.kubevirt.state import State, find_state
from tools.cluster.binaries import find_kubectl
from tools.cluster.cache import Cache
from tools.cluster.docker import find_docker, own_daemon_pid
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl, is_ready, list_unready
from tools.dev.operators import list_operators
from tools.dev.options import render_up

_MARKS: Final = {True: "[green]✓[/green]", False: "[red]✗[/red]", None: "[dim]-[/dim]"}
_TOP: Final = frozenset({"docker", "cluster"})


@dataclass(frozen=True, slots=True)
class Row:
    """The state of one part.

    Attributes:
        part: Kind of part, such as `node`.
        name: Its name, if there can be several.
        ok: Whether it works; None if it does not exist.
        detail: Its state, and the remedy if it does not work.
    """

    part: str
    name: str
    ok: bool | None
    detail: str


def render_rows(rows: Iterable[Row]) -> Table:
    """Render rows for people; parts of the cluster are indented."""
    table = Table.grid(padding=(0, 2))
    for row in rows:
        indent = "" if row.part in _TOP else "  "
        title = f"{indent}{row.part} {row.name}".rstrip()
        table.add_row(_MARKS[row.ok], title, escape(row.detail))
    return table


def list_rows(name: str, kubeconfig: Path | None, context: str | None) -> Iterator[Row]:
    """Yield the state of every part without starting anything."""
    cache = Cache()
    own = bool(kubeconfig or context)
    title = "" if own else name
    cluster = KindCluster(name, cache)
    if own:
        kubectl = Kubectl(find_kubectl(cache), kubeconfig, context)
    else:
        yield _docker_row(cache)
        if not cluster.kubeconfig.exists():
            yield Row("cluster", title, None, f"does not exist: run {render_up(name)}")
            return
        kubectl = cluster.kubectl()
    problem = kubectl.find_problem()
    if problem:
        hint = "check --kubeconfig and --context" if own else render_up(name)
        yield Row("cluster", title, False, f"does not respond: {hint}\n{problem}")
        return
    yield _cluster_row(title, kubectl)
    for node in kubectl.items("nodes"):
        yield node_row(node)
    yield kubevirt_row(find_state(kubectl))
    yield from _operator_rows(kubectl)


def node_row(node: Mapping[str, Any]) -> Row:
    """Return the row of one node."""
    info = node["status"]["nodeInfo"]
    ready = is_ready(node)
    text = f"{'ready' if ready else 'not ready'}, {info['kubeletVersion']}, {info['osImage']}"
    return Row("node", node["metadata"]["name"], ready, text)


def kubevirt_row(state: State) -> Row:
    """Return the row of KubeVirt and CDI."""
    if state.simulated:
        return Row("KubeVirt", "", True, "simulated")
    if not state.installed:
        hint = "./dev up --with kubevirt, or ./dev kubevirt-sim --deploy"
        return Row("KubeVirt", "", None, f"not installed: {hint}")
    return Row("KubeVirt", "", state.ready, state.describe())


def operator_row(operator: str, deployment: Mapping[str, Any]) -> Row:
    """Return the row of one installed operator."""
    wanted = deployment["spec"].get("replicas", 1)
    ready = deployment.get("status", {}).get("readyReplicas", 0)
    containers = deployment["spec"]["template"]["spec"]["containers"]
    where = f"namespace {deployment['metadata']['namespace']}"
    text = f"{ready}/{wanted} ready, {where}, {containers[0]['image']}"
    return Row("operator", operator, ready >= wanted, text)


def _docker_row(cache: Cache) -> Row:
    docker = find_docker(cache)
    if docker is None:
        return Row("docker", "", None, "does not respond: ./dev up starts docker if possible")
    version = docker.read("version", "--format", "{{.Server.Version}}").strip()
    pid = own_daemon_pid(cache) if docker.host else None
    whose = f"private daemon, process {pid}" if pid else "your own"
    place = f", {docker.host}" if docker.host else ""
    return Row("docker", "", True, f"{version}, {whose}{place}")


def _cluster_row(name: str, kubectl: Kubectl) -> Row:
    version = kubectl.read("get", "--raw", "/version")
    system = kubectl.items("pods,deployments", "--namespace", "kube-system")
    unready = list_unready(system)
    git = next((part for part in version.split('"') if part.startswith("v1.")), "")
    detail = f"system pods not ready: {', '.join(unready)}" if unready else "system pods ready"
    return Row("cluster", name, not unready, f"Kubernetes {git}, {detail}")


def _operator_rows(kubectl: Kubectl) -> Iterator[Row]:
    label = "app.kubernetes.io/name"
    try:
        # One request for all operators.
        found = kubectl.items(
            *("deployments", "--all-namespaces", "--selector", "app.kubernetes.io/part-of=slipway")
        )
    except ToolError as err:
        yield Row("operators", "", False, str(err).splitlines()[0])
        return
    for operator in list_operators():
        own = [one for one in found if one["metadata"]["labels"].get(label) == operator]
        yield from (operator_row(operator, deployment) for deployment in own)
        if not own:
            yield Row("operator", operator, None, f"not installed: ./dev install {operator}")
