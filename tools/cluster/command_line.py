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
import re
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
        """Render the usage, the description, panels of arguments and options, and the epilog."""
        columns = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
        output = io.StringIO()
        console = Console(
            file=output, width=columns, force_terminal=sys.stdout.isatty(), highlight=False
        )
        console.print()
        console.print(f" {self._render_usage()}", markup=False, soft_wrap=True)
        if self.description:
            console.print(f"\n{_fill(self.description)}\n", markup=False)
        for title, wanted in (("Arguments", True), ("Options", False)):
            table = Table.grid(padding=(0, 2))
            for action in self._actions:
                if action.help != argparse.SUPPRESS and (not action.option_strings) == wanted:
                    for name, text in self._list_rows(action):
                        table.add_row(escape(name), escape(text))
            if table.row_count:
                console.print(Panel(table, title=title, title_align="left", border_style="dim"))
        if self.epilog:
            console.print(f"\n{self.epilog}", markup=False, soft_wrap=True)
        return output.getvalue()

    def error(self, message: str) -> NoReturn:
        """Print the cause, then where help is, and exit."""
        _print_error(f"{message}\nTry `{self.prog} --help`.")
        raise SystemExit(_MISUSED)

    def _render_usage(self) -> str:
        places = [self._name(one) for one in self._actions if not one.option_strings]
        return " ".join(["Usage:", self.prog, "[OPTIONS]", *places])

    def _list_rows(self, action: argparse.Action) -> list[tuple[str, str]]:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # it has no public name
            commands = action._choices_actions  # noqa: SLF001
            return [(each.dest, _end(each.help or "")) for each in commands]
        return [(self._name(action), self._explain(action))]

    def _name(self, action: argparse.Action) -> str:
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        if not action.option_strings:
            return {"*": f"[{metavar}]...", "?": f"[{metavar}]"}.get(str(action.nargs), metavar)
        return ", ".join(action.option_strings) + (f" {metavar}" if action.nargs != 0 else "")

    def _explain(self, action: argparse.Action) -> str:
        text = (action.help or "") % {"default": action.default, "prog": self.prog}
        choices = [str(choice) for choice in action.choices or () if choice]
        if choices and not self.epilog:
            text = f"{text}: {', '.join(choices)}" if text else ", ".join(choices)
        if _is_shown(action.default) and "efault" not in text:
            values = action.default if isinstance(action.default, list) else [action.default]
            text = f"{text}. Defaults to {' '.join(map(str, values))}".removeprefix(". ")
        return _end(text)


def _end(text: str) -> str:
    """Make a sentence of a text."""
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", ")")) else f"{text}."


def _fill(text: str) -> str:
    """Join the lines of each paragraph and of each item of a list."""
    paragraphs = [
        re.sub(r" (?=\* )", "\n ", " ".join(each.split())) for each in text.strip().split("\n\n")
    ]
    return "\n\n".join(f" {each}" for each in paragraphs)


def _is_shown(default: object) -> bool:
    """Return whether a default says something to a reader."""
    return bool(default) and default is not True and default != argparse.SUPPRESS


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
