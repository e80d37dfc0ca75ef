"""Commands about ./dev itself: doctor, completion, and the option --version."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer._completion_shared import get_completion_script

from tools.cluster import commands
from tools.cluster.cache import Cache
from tools.cluster.errors import CommandFailed, ToolError
from tools.cluster.versions import KUBERNETES, TOOL_MODULES
from tools.dev.doctor import Finding, examine
from tools.dev.operators import ROOT
from tools.dev.options import Output, OutputFormat

COMPLETION_VARIABLE: Final = "_SLIPWAY_DEV_COMPLETE"
"""Variable by which the shell asks for completions."""
_PANEL: Final = "This machine"
_MARKS: Final = {True: "[green]✓[/green]", False: "[red]✗[/red]", None: "[dim]-[/dim]"}


class Shell(StrEnum):
    """A shell that has completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the commands and the option to the command line."""
    for function in (doctor, completion):
        app.command(rich_help_panel=_PANEL)(function)
    app.callback()(options)


def print_version(*, wanted: bool) -> None:
    """Print the version and exit, if the option was given."""
    if wanted:
        print(render_version())
        raise typer.Exit


def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version of the checkout and of its tools.",
            is_eager=True,
            callback=lambda value: print_version(wanted=value),
        ),
    ] = False,
) -> None:
    """Create a cluster, and build, run and test the operators of Slipway.

    You can interrupt any command and run it again: it continues from the point at which it stopped.
    """


def doctor(output: Output = OutputFormat.TABLE) -> None:
    """List what this machine lacks for a cluster and a demo, without starting anything."""
    findings = list(examine(Cache()))
    if output is OutputFormat.JSON:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        Console(highlight=False, soft_wrap=True).print(_render(findings))
    if missing := [finding.what for finding in findings if finding.ok is False]:
        raise ToolError(f"This machine is not ready: {', '.join(missing)}")


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="Your shell.")],
) -> None:
    """Print the completion script of a shell, for source <(./dev completion bash)."""
    script = get_completion_script(
        prog_name="./dev", complete_var=COMPLETION_VARIABLE, shell=shell.value
    )
    print(script)


def render_version() -> str:
    """Return the commit of the checkout, and the versions of what it installs."""
    try:
        commit = commands.read(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]).strip()
    except (CommandFailed, OSError):
        commit = "unknown commit"
    tools = ", ".join(TOOL_MODULES[name].rpartition("/")[2] for name in ("kind", "helm"))
    return f"slipway {commit}, Kubernetes {KUBERNETES}, {tools.replace('@', ' ')}"


def _render(findings: list[Finding]) -> Table:
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        table.add_row(_MARKS[finding.ok], finding.what, escape(finding.detail))
    return table
