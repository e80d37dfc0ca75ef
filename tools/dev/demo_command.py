"""The command that shows it all: demo."""

from __future__ import annotations

import importlib
from typing import Annotated, Final

import typer

from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import DEFAULT_NAME
from tools.dev.operators import check_operator, list_operators
from tools.dev.options import ContextName, Kubeconfig, Name, Namespace

_FIRST: Final = ("podset", "volumes")
"""What a newcomer is shown: each further operator costs a minute to build."""

_CLOUD: Final = "cloud"
"""A story of several operators rather than one of them."""


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel="Start here")(demo)


def demo(
    operators: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="The operators; podset and volumes by default. cloud shows a Kubernetes cluster "
            "of simulated machines that move, reboot, are rebuilt and go.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every operator.")] = False,
    namespace: Namespace = "default",
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Take the images that were built last.")
    ] = False,
) -> None:
    """From a bare machine to running operators and their objects turning Ready."""
    if _CLOUD in (operators or ()):
        if operators != [_CLOUD] or everything or kubeconfig or context:
            raise ToolError(
                "demo cloud is a story of its own on a kind cluster: name no other operator, and"
                " leave --all, --kubeconfig and --context out"
            )
        run_cloud_demo = importlib.import_module("tools.demo.cloud").run_cloud_demo
        run_cloud_demo(namespace=namespace, name=name, build=not no_build)
        return
    named = list_operators() if everything else operators or _FIRST
    chosen = [check_operator(one) for one in named]
    # Imported here, since the demo needs everything and --help must stay quick.
    run_demo = importlib.import_module("tools.demo.run").run_demo
    run_demo(
        chosen,
        namespace=namespace,
        name=name,
        kubeconfig=kubeconfig,
        context=context,
        build=not no_build,
    )
