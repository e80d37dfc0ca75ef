"""The command that shows it all: demo."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from tools.cluster.kind_cluster import DEFAULT_NAME
from tools.dev.operators import check_operator, list_operators
from tools.dev.options import ContextName, Kubeconfig, Name, Namespace


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel="Start here")(demo)


def demo(
    operators: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="The operators; all when none is named."),
    ] = None,
    namespace: Namespace = "default",
    name: Name = DEFAULT_NAME,
    kubeconfig: Kubeconfig = None,
    context: ContextName = None,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Take the images that were built last.")
    ] = False,
) -> None:
    """From a bare machine to running operators and their objects turning Ready."""
    chosen = [check_operator(one) for one in operators] if operators else list_operators()
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
