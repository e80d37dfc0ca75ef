"""Run ./dev: one clear line for an error, a traceback only where SLIPWAY_DEBUG asks for it."""

from __future__ import annotations

import os
import sys

from rich.console import Console

from tools.cluster.errors import ToolError
from tools.dev.app import app

_INTERRUPTED = 130


def main() -> int:
    """Run the command line and return its exit status."""
    try:
        app(prog_name="./dev")
    except ToolError as err:
        if os.environ.get("SLIPWAY_DEBUG"):
            raise
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[red]Error:[/red] {str(err).replace('[', r'\[')}"
        )
        return 1
    except KeyboardInterrupt:
        print("Interrupted; run the command again to go on.", file=sys.stderr)
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
