"""Run ./dev."""

from __future__ import annotations

from typer._completion_classes import completion_init

from tools.cluster.command_line import run
from tools.dev.app import app
from tools.dev.machine_commands import COMPLETION_VARIABLE


def main() -> int:
    """Run the command line and return its exit status."""
    completion_init()
    return run(lambda: app(prog_name="./dev", complete_var=COMPLETION_VARIABLE))


if __name__ == "__main__":
    raise SystemExit(main())
