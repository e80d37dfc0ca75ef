"""Output as kubectl-like tables, JSON and YAML."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and newline, and what reverses the direction of text."""


class SafeStream:
    """A stream that writes control characters as escapes, which JSON reads as the character.

    Anyone who may write an Event or a status could otherwise move the cursor of the reader's
    terminal, overwrite what is shown, and fill the clipboard.
    """

    def __init__(self, stream: TextIO) -> None:
        """Write to another stream."""
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text without control characters."""
        return self.stream.write(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the other stream."""
        return getattr(self.stream, name)


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], out: TextIO | None = None
) -> None:
    """Print a table; the last column is not padded."""
    lines = [[str(each) for each in header]]
    lines += [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=False)]
        print("   ".join([*cells, line[-1]]).rstrip(), file=out or sys.stdout)


def print_data(data: Any, format: str) -> None:
    """Print data as json or yaml."""
    if format == "json":
        import json

        print(json.dumps(data, indent=2, ensure_ascii=False))
        return
    import yaml

    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")


def shorten(text: str, limit: int = 100) -> str:
    """Put a text on one line, and truncate it if a person reads it; programs get all of it."""
    line = " ".join(text.split())
    short = len(line) <= limit or not sys.stdout.isatty()
    return line if short else line[: limit - 1] + "…"
