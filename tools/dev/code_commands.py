"""Commands on the code, each a package of tools: new, test, generate, release, bench, sweep..."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from tools.cluster.errors import ToolError
from tools.dev.operators import ROOT, has_module, list_operators

_PANEL = "The code"
_PASSING = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line; their arguments are passed on as they are."""
    for function in (new, test, generate, release, bench, sweep, pulsar):
        app.command(rich_help_panel=_PANEL, context_settings=_PASSING)(function)


def new(context: typer.Context) -> None:
    """Start a new operator that works, with its chart and tests, from the tutorial's."""
    delegate("tools.scaffold", context.args)


def test(context: typer.Context) -> None:
    """Run everything that CI runs: lint, types, unit, integration, e2e."""
    delegate("tools.gate", context.args)


def generate(context: typer.Context) -> None:
    """Write what is generated: CRDs, RBAC, values, reference docs; --check compares only."""
    delegate("tools.generate", context.args)


def release(context: typer.Context) -> None:
    """Make the image and chart of an operator's version, and push them to a registry."""
    delegate("tools.release", context.args)


def bench(context: typer.Context) -> None:
    """Run the benchmarks of an operator: ./dev bench ID."""
    known = [each for each in list_operators() if has_module(f"tools.bench.{each}")]
    operator, rest = (context.args or [""])[0], context.args[1:]
    if operator in ("-h", "--help"):
        print(f"Usage: ./dev bench ID [OPTIONS]\n\nOne of: {', '.join(known)}")
        print("Options of each: ./dev bench ID --help")
        return
    if operator not in known:
        raise ToolError(f"There is no benchmark of {operator!r}: name one of {', '.join(known)}")
    delegate(f"tools.bench.{operator}", rest)


def sweep(context: typer.Context) -> None:
    """Harm operators at each of their writes, and see that they come through."""
    delegate("tools.sweep", context.args)


def pulsar(context: typer.Context) -> None:
    """Run a real Pulsar broker on this machine: up, down, fetch."""
    delegate("tools.pulsar", context.args)


def delegate(module: str, arguments: Sequence[str]) -> None:
    """Become `python -m module` in the root of the checkout.

    Raises:
        ToolError: This checkout has no such module.
    """
    if not has_module(module):
        raise ToolError(f"{module.replace('.', '/')} is not in this checkout: nothing to run")
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
