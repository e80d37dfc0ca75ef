"""Page: the checklist for people. `python -m tests.security.page` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.security.checklist import ROWS
from tests.security.code import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "security-checklist.md"
_HEAD: Final = """# Security checklist

This page lists each control with the tests that verify it, and with the tests that prove that
these tests can fail. A test checks that all of them exist and that this page is up to date;
`python -m tests.security.page` writes it. [Security](../explanation/security.md) explains how
operators are protected.

| # | control | verified by | can fail, proved by | not checked |
| --- | --- | --- | --- | --- |
"""


def render_page() -> str:
    """Render the page."""
    rows = [
        f"| {row.number} | {row.control} | {_list(row.checks)} | {_list(row.negative)} "
        f"| {row.note} |"
        for row in ROWS
    ]
    return _HEAD + "\n".join(rows) + "\n"


def _list(tests: Sequence[str]) -> str:
    return "<br>".join(
        f"`{file}`: {name}" for file, _, name in (each.partition("::") for each in tests)
    )


if __name__ == "__main__":
    PAGE.write_text(render_page())
