"""Run a tool and report an error as one line, or with its traceback on request."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Final

from rich.console import Console

from tools.cluster.cache import cache_root
from tools.cluster.errors import ToolError

DEBUG_VARIABLE: Final = "SLIPWAY_DEBUG"
"""If set to any value, errors show their traceback."""
_INTERRUPTED: Final = 130


def run(main: Callable[[], int | None]) -> int:
    """Run the main function of a tool and return its exit status."""
    try:
        return main() or 0
    except KeyboardInterrupt:
        print("Interrupted; run the command again to continue.", file=sys.stderr)
        return _INTERRUPTED
    except (ToolError, OSError) as err:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        text = str(err) if isinstance(err, ToolError) else explain(err)
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[red]Error:[/red] {text.replace('[', r'\[')}"
        )
        return 1


def explain(error: OSError) -> str:
    """Return what the system refused, for which path, and what to do."""
    if error.strerror is None:
        return str(error)
    what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            todo = f"free disk space; {cache_root()} may be deleted after `./dev down --all`"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            todo = "check its owner, or set SLIPWAY_CACHE to a different cache directory"
        case _:
            todo = f"set {DEBUG_VARIABLE}=1 to see the traceback"
    return f"{what}; {todo}"
