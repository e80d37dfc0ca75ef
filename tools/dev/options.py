"""Options shared by several commands, and the cluster that they select."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from tools.cluster.binaries import find_kubectl
from tools.cluster.cache import Cache
from tools.cluster.demo_state import find_demo
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME, KindCluster
from tools.cluster.kubectl import Kubectl

CLUSTER_VARIABLE: Final = "SLIPWAY_CLUSTER"
"""Environment variable: name of the kind cluster of all commands."""

# Plain assignments, because typer does not resolve aliases declared with `type`.
Name = Annotated[
    str, typer.Option("--name", envvar=CLUSTER_VARIABLE, help="Name of the kind cluster.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=0,
        max=9,
        help="Number of worker nodes. Defaults to the number in the existing cluster, or 0.",
    ),
]
KubeVirtFrom = Annotated[
    Path | None,
    typer.Option(
        "--kubevirt-from",
        metavar="DIR",
        help="Directory with image archives (*.tar) and manifests (*.yaml) of KubeVirt and CDI."
        " Defaults to the published releases.",
        exists=True,
        file_okay=False,
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Use your own cluster, from this kubeconfig file.",
        exists=True,
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option("--context", help="Use your own cluster, from this kubeconfig context."),
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the operator and its objects.")
]
SYSTEM_NAMESPACE = "slipway-system"
SystemNamespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the operator.")
]
FoundNamespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace of the operator. Defaults to the namespace that it is installed in.",
        show_default=False,
    ),
]
OperatorId = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id of the operator, such as podset.", show_default=False),
]


class OutputFormat(StrEnum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]


class Addition(StrEnum):
    """An addition that `./dev up --with` installs into a cluster."""

    CSI = "csi"
    KUBEVIRT = "kubevirt"
    NETWORK_POLICIES = "network-policies"


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a command works on; `kind` is None for a cluster of the user."""

    kubectl: Kubectl
    kind: KindCluster | None

    def helm_flags(self) -> list[str]:
        """Return the flags that select the same cluster in helm."""
        flags = []
        if self.kubectl.kubeconfig:
            flags += ["--kubeconfig", str(self.kubectl.kubeconfig)]
        if self.kubectl.context:
            flags += ["--kube-context", self.kubectl.context]
        return flags


def find_target(
    kubeconfig: Path | None,
    context: str | None,
    name: str = DEFAULT_NAME,
    cache: Cache | None = None,
    *,
    demo: bool = False,
) -> Target:
    """Return the cluster that the options select: the user's own if named, otherwise kind.

    With `demo`, the demo on this machine comes before the default kind cluster if it runs.

    Raises:
        ToolError: The cluster does not exist, or its API server does not respond.
    """
    cache = cache or Cache()
    if demo and name == DEFAULT_NAME and not (kubeconfig or context):
        running = find_demo(cache)
        kubeconfig = running.kubeconfig if running else None
    own = bool(kubeconfig or context)
    kind = None if own else KindCluster(name, cache)
    if kind and not kind.kubeconfig.exists():
        raise ToolError(
            f"Cluster {name} does not exist: run `{render_up(name)}`, or select your own cluster"
            " with --kubeconfig or --context"
        )
    kubectl = Kubectl(
        find_kubectl(cache), kind.kubeconfig if kind else kubeconfig, None if kind else context
    )
    problem = kubectl.find_problem()
    if problem:
        hint = f"run `{render_up(name)}`" if kind else "check --kubeconfig and --context"
        where = _describe(kubectl, kind)
        raise ToolError(f"The API server of {where} does not respond: {hint}\n{problem}")
    return Target(kubectl, kind)


def render_up(name: str) -> str:
    """Return the command that creates or starts a kind cluster."""
    return "./dev up" if name == DEFAULT_NAME else f"./dev up --name {name}"


def hint_cluster(name: str) -> list[tuple[str, str]]:
    """Return the command, with its purpose, that the next commands need for a kind cluster."""
    if name == DEFAULT_NAME:
        return []
    return [(f"export {CLUSTER_VARIABLE}={name}", "select this cluster in all commands")]


def _describe(kubectl: Kubectl, kind: KindCluster | None) -> str:
    if kind:
        return f"cluster {kind.name}"
    parts = [str(kubectl.kubeconfig or "")] + (
        [f"context {kubectl.context}"] if kubectl.context else []
    )
    return " ".join(part for part in parts if part)
