"""Output as kubectl-like tables, JSON and YAML."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO


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
        print(json.dumps(data, indent=2, ensure_ascii=False))
        return
    import yaml

    print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")


def shorten(text: str, limit: int = 100) -> str:
    """Put a text on one line, and truncate it if a person reads it; programs get all of it."""
    line = " ".join(text.split())
    short = len(line) <= limit or not sys.stdout.isatty()
    return line if short else line[: limit - 1] + "…"
