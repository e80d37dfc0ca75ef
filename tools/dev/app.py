"""Assemble the command line of ./dev from its groups of commands."""

from __future__ import annotations

from typing import Final

import typer

from tools.dev import (
    cluster_commands,
    code_commands,
    demo_command,
    machine_commands,
    operator_commands,
)
from tools.dev.group import Commands

app: Final = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

# The order here is the order of the groups in --help.
demo_command.register(app)
cluster_commands.register(app)
operator_commands.register(app)
code_commands.register(app)
machine_commands.register(app)
