"""Run ./dev."""

from __future__ import annotations

from tools.cluster.command_line import run
from tools.dev.app import app


def main() -> int:
    """Run the command line and return its exit status."""
    return run(lambda: app(prog_name="./dev"))


if __name__ == "__main__":
    raise SystemExit(main())
