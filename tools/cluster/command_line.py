"""What all commands have in common: their exit codes, errors, and the form of their help.

| exit code | meaning |
|---|---|
| 0 | the command did what it was asked to do |
| 1 | it failed; the first line on standard error states the cause |
| 2 | the command line is wrong; nothing was done |
| 130 | interrupted; the command can be run again |
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import shutil
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from tools.cluster.cache import cache_root
from tools.cluster.errors import ToolError, UsageError

DEBUG_VARIABLE: Final = "SLIPWAY_DEBUG"
"""If set to any value, errors show their traceback."""
_FAILED: Final = 1
_MISUSED: Final = 2
_INTERRUPTED: Final = 130
_MOST_COLUMNS: Final = 100


class Parser(argparse.ArgumentParser):
    """A parser whose help and errors have the form of the other commands of ./dev."""

    def format_help(self) -> str:
        """Render the usage, the description, and panels of arguments and options."""
        columns = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
        output = io.StringIO()
        console = Console(
            file=output, width=columns, force_terminal=sys.stdout.isatty(), highlight=False
        )
        console.print()
        console.print(f" {self._render_usage()}", markup=False, soft_wrap=True)
        if self.description:
            console.print(f"\n {' '.join(self.description.split())}\n", markup=False)
        for title, wanted in (("Arguments", True), ("Options", False)):
            table = Table.grid(padding=(0, 2))
            for action in self._actions:
                if action.help != argparse.SUPPRESS and (not action.option_strings) == wanted:
                    table.add_row(escape(self._name(action)), escape(self._explain(action)))
            if table.row_count:
                console.print(Panel(table, title=title, title_align="left", border_style="dim"))
        return output.getvalue()

    def error(self, message: str) -> NoReturn:
        """Print the cause, then where help is, and exit."""
        _print_error(f"{message}\nTry `{self.prog} --help`.")
        raise SystemExit(_MISUSED)

    def _render_usage(self) -> str:
        places = [self._name(one) for one in self._actions if not one.option_strings]
        return " ".join(["Usage:", self.prog, "[OPTIONS]", *places])

    def _name(self, action: argparse.Action) -> str:
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        if not action.option_strings:
            return f"[{metavar}]..." if action.nargs == "*" else metavar
        return ", ".join(action.option_strings) + (f" {metavar}" if action.nargs != 0 else "")

    def _explain(self, action: argparse.Action) -> str:
        text = (action.help or "") % {"default": action.default, "prog": self.prog}
        if choices := [str(choice) for choice in action.choices or () if choice]:
            text = f"{text} [{'|'.join(choices)}]".strip()
        text = text[:1].upper() + text[1:]
        return text if not text or text.endswith((".", ")", "]")) else f"{text}."


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
        _print_error(str(err) if isinstance(err, ToolError) else explain(err))
        return _MISUSED if isinstance(err, UsageError) else _FAILED


def _print_error(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]Error:[/red] {escape(text)}")


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
