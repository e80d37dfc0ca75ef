"""Options that several commands share, and the cluster that they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tools.cluster.binaries import find_kubectl
from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME, KindCluster
from tools.cluster.kubectl import Kubectl

# Plain assignments: typer does not look into aliases made by `type`.
Name = Annotated[str, typer.Option("--name", help="Name of the kind cluster.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=0,
        max=9,
        help="Worker nodes beside the control plane; those that are there, or none.",
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", help="A cluster of your own, by its kubeconfig file.", exists=True
    ),
]
ContextName = Annotated[
    str | None, typer.Option("--context", help="A cluster of your own, by its kubeconfig context.")
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the operator and its objects.")
]
OperatorId = Annotated[
    str, typer.Argument(metavar="ID", help="The operator, such as podset.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class Target:
    """Name the cluster that a command works on; `kind` is None for one of the user's own."""

    kubectl: Kubectl
    kind: KindCluster | None

    def helm_flags(self) -> list[str]:
        """Return the flags by which helm finds the same cluster."""
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
) -> Target:
    """Return the cluster that the options mean: the user's own where one is named, else kind's.

    Raises:
        ToolError: The cluster does not answer.
    """
    cache = cache or Cache()
    own = bool(kubeconfig or context)
    kind = None if own else KindCluster(name, cache)
    if kind and not kind.kubeconfig.exists():
        raise ToolError(
            f"Cluster {name} is not there: run `{render_up(name)}`, or name one of your own with"
            " --kubeconfig or --context"
        )
    kubectl = Kubectl(
        find_kubectl(cache), kind.kubeconfig if kind else kubeconfig, None if kind else context
    )
    problem = kubectl.find_problem()
    if problem:
        hint = f"run `{render_up(name)}`" if kind else "check --kubeconfig and --context"
        where = _describe(kubectl, kind)
        raise ToolError(f"The API server of {where} does not answer: {hint}\n{problem}")
    return Target(kubectl, kind)


def render_up(name: str) -> str:
    """Return the command that brings a kind cluster up."""
    return "./dev up" if name == DEFAULT_NAME else f"./dev up --name {name}"


def _describe(kubectl: Kubectl, kind: KindCluster | None) -> str:
    if kind:
        return f"cluster {kind.name}"
    parts = [str(kubectl.kubeconfig or "")] + (
        [f"context {kubectl.context}"] if kubectl.context else []
    )
    return " ".join(part for part in parts if part)
