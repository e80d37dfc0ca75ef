"""Commands that run a package of tools or of the laboratory: new, test, generate, bench..."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from tools.cluster.errors import ToolError
from tools.dev.operators import ROOT, has_module

_PANEL = "Code"
_PASSING = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line; their arguments are passed on unchanged."""
    for function in (kubevirt_sim, guest_image):
        app.command(rich_help_panel="Cluster", context_settings=_PASSING)(function)
    for function in (new, test, generate, docs, release, bench, sweep, pulsar):
        app.command(rich_help_panel=_PANEL, context_settings=_PASSING)(function)


def new(context: typer.Context) -> None:
    """Create a working operator with its chart and tests, from the operator of the tutorial."""
    delegate("tools.scaffold", context.args)


def test(context: typer.Context) -> None:
    """Run all checks of CI: lint, types, unit, integration and end-to-end tests."""
    delegate("tools.gate", context.args)


def generate(context: typer.Context) -> None:
    """Generate CRDs, RBAC, chart values and reference pages; --check only compares them."""
    delegate("tools.generate", context.args)


def docs(context: typer.Context) -> None:
    """Build the documentation site and serve it locally; --build only builds it."""
    delegate("tools.site", context.args)


def release(context: typer.Context) -> None:
    """Build the image and chart of an operator and push them to a registry."""
    delegate("tools.release", context.args)


def bench(context: typer.Context) -> None:
    """Run the benchmark of an operator or of the library: ./dev bench ID."""
    delegate("lab.bench", context.args)


def sweep(context: typer.Context) -> None:
    """Inject a fault at each write of an operator: ./dev sweep ID, or of any: ./dev sweep run."""
    # Paths of an operator elsewhere are relative to the folder of the user.
    delegate("lab.sweep", context.args, stay=context.args[:1] in (["run"], ["replay"]))


def pulsar(context: typer.Context) -> None:
    """Run a real Pulsar broker on this machine: up, down, fetch."""
    delegate("tools.pulsar", context.args)


def kubevirt_sim(context: typer.Context) -> None:
    """Simulate KubeVirt and CDI, for a cluster without them."""
    delegate("lab.kubevirt_sim.command", context.args)


def guest_image(context: typer.Context) -> None:
    """Build a small guest image from Debian packages and print its path."""
    delegate("lab.guest.command", context.args)


def delegate(module: str, arguments: Sequence[str], *, stay: bool = False) -> None:
    """Replace this process with `python -m module`, in the root of the checkout unless it stays.

    Raises:
        ToolError: This checkout has no such module.
    """
    if not has_module(module):
        raise ToolError(f"{module.replace('.', '/')} does not exist in this checkout")
    if not stay:
        os.chdir(ROOT)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
