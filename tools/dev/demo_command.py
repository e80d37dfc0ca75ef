"""The command `demo`, which installs operators and shows their objects."""

from __future__ import annotations

import importlib
from typing import Annotated, Final

import typer

from tools.cluster.errors import UsageError
from tools.cluster.kind_cluster import DEFAULT_NAME
from tools.dev.operators import check_operator, list_operators
from tools.dev.options import ContextName, Kubeconfig, KubeVirtFrom, Name, Namespace

_FIRST: Final = ("podset", "volumes")
"""Operators shown by default; each additional operator takes a minute to build."""

_CLOUD: Final = "cloud"
"""A demo of several operators together; it is not the id of an operator."""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel="Start here")(demo)


def demo(
    operators: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="Operators to show. Defaults to podset and volumes. cloud shows a Kubernetes "
            "cluster of simulated machines that are migrated, rebooted, rebuilt and deleted.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every operator.")] = False,
    kind: Annotated[
        bool,
        typer.Option(
            "--kind",
            help="Run real containers on a kind cluster. The first run takes up to 30 minutes.",
        ),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", "-d", help="Return when all is Ready; the demo goes on."),
    ] = False,
    real: Annotated[
        bool,
        typer.Option(
            "--real",
            help="Run kube-apiserver and etcd, from KUBEBUILDER_ASSETS or the cache, instead of"
            " the built-in API server.",
        ),
    ] = False,
    namespace: Namespace = "default",
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
    kubevirt: Annotated[
        bool,
        typer.Option("--kubevirt", help="With cloud: run one machine on the real KubeVirt."),
    ] = False,
    kubevirt_from: KubeVirtFrom = None,
    monitoring: Annotated[
        bool,
        typer.Option(
            "--monitoring",
            help="Run Prometheus with the alerts of the charts, and Grafana with the dashboards"
            " if its image can be pulled; change objects so that the graphs move.",
        ),
    ] = False,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Use the images of the last build.")
    ] = False,
) -> None:
    """Run operators on this machine and show their objects becoming Ready.

    Nodes and containers are simulated; nothing but Python is needed. --kind, --kubeconfig and
    --context show the same on a real cluster.
    """
    on_cluster = (
        kind or kubevirt or monitoring or no_build or kubeconfig or context or name != DEFAULT_NAME
    )
    if not on_cluster:
        _run_embedded(operators, everything, namespace, detach=detach, real=real)
        return
    if detach or real:
        raise UsageError("--detach and --real are options of the demo on this machine")
    if _CLOUD in (operators or ()):
        if operators != [_CLOUD] or everything or kubeconfig or context or monitoring:
            raise UsageError(
                "demo cloud runs alone: remove the other operators, --all,"
                " --monitoring, --kubeconfig and --context"
            )
        if kubevirt:
            run_kubevirt_demo = importlib.import_module("tools.demo.kubevirt").run_kubevirt_demo
            run_kubevirt_demo(
                namespace=namespace, name=name, folder=kubevirt_from, build=not no_build
            )
            return
        run_cloud_demo = importlib.import_module("tools.demo.cloud").run_cloud_demo
        run_cloud_demo(namespace=namespace, name=name, build=not no_build)
        return
    if kubevirt or kubevirt_from:
        raise UsageError(
            "--kubevirt and --kubevirt-from are options of the cloud demo: run"
            " `./dev demo cloud --kubevirt`"
        )
    if monitoring and (kubeconfig or context):
        raise UsageError("--monitoring needs the kind cluster: remove --kubeconfig and --context")
    named = list_operators() if everything else operators or _FIRST
    chosen = [check_operator(one) for one in named]
    # Imported here: the demo loads most of the library, and --help must stay fast.
    run_demo = importlib.import_module("tools.demo.run").run_demo
    run_demo(
        chosen,
        namespace=namespace,
        name=name,
        kubeconfig=kubeconfig,
        context=context,
        build=not no_build,
        monitoring=monitoring,
    )


def _run_embedded(
    operators: list[str] | None, everything: bool, namespace: str, *, detach: bool, real: bool
) -> None:
    # Imported here: --help must stay fast.
    run = importlib.import_module("tools.demo.embedded.demo").run_embedded_demo
    if _CLOUD in (operators or ()):
        if operators != [_CLOUD] or everything or real:
            raise UsageError(
                "demo cloud runs alone, on the built-in API server: remove the other operators,"
                " --all and --real"
            )
        chosen = importlib.import_module("tools.demo.cloud").OPERATORS
        run(chosen, namespace=namespace, detach=detach, cloud=True)
        return
    named = list_operators() if everything else operators or _FIRST
    chosen = [check_operator(one) for one in named]
    run(chosen, namespace=namespace, detach=detach, real=real, cloud=False)
