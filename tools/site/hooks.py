"""Changes of rendered pages; mkdocs calls them by their names."""

from __future__ import annotations

import re
from typing import Any, Final

STYLES: Final = """\
/* Names in tables break at dots and slashes only, see tools/site/hooks.py. */
.md-typeset table:not([class]) code {
  overflow-wrap: normal;
  word-break: normal;
}
.md-grid {
  max-width: 72rem;
}
"""
_CELL: Final = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CODE: Final = re.compile(r"(<code>)(.*?)(</code>)", re.DOTALL)
_BREAK: Final = re.compile(r"(?<=[./|)\]])(?=[^\s<])")


def on_page_content(html: str, **_: Any) -> str:
    """Allow line breaks after dots, slashes and brackets in code in tables."""
    return _CELL.sub(lambda cell: _CODE.sub(_allow_breaks, cell.group()), html)


def _allow_breaks(code: re.Match[str]) -> str:
    return code[1] + _BREAK.sub("<wbr>", code[2]) + code[3]
