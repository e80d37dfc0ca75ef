"""Changes of rendered pages; mkdocs calls them by their names."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

STYLES: Final = """\
/* Names in tables break at dots and slashes only, see tools/site/hooks.py. */
.md-typeset table:not([class]) code {
  overflow-wrap: normal;
  word-break: normal;
}
.md-typeset table:not([class]) code.flag {
  white-space: nowrap;
}
/* Descriptions are longer than the names and types next to them. */
.md-typeset table:not([class]) th.description {
  min-width: 13rem;
}
.md-grid {
  max-width: 72rem;
}
"""
_CELL: Final = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CODE: Final = re.compile(r"<code>(.*?)</code>", re.DOTALL)
_BREAK: Final = re.compile(r"(?<=[./|)\]])(?=[^\s<])")
_VARIABLE: Final = re.compile(r"[A-Z0-9]+(?:_[A-Z0-9]+){2,}")
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_PATH: Final = re.compile(r"(?<!\[)`((?:docs|helm|operators)/[\w/.-]+\.md)`(?!\])")
_HEADING: Final = re.compile(r"^# (.+)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Title a page by its heading, and link paths of pages.

    The entry in the navigation is shorter than the heading: eight pages are called API there.
    READMEs of charts name pages by path, because they are also shown where links do not work.
    """
    if found := _HEADING.search(markdown):
        page.meta.setdefault("title", found[1].replace("`", ""))

    def link(span: re.Match[str]) -> str:
        if files.get_file_from_path(span[1]) is None:
            return span[0]
        return f"[{span[0]}]({posixpath.relpath(span[1], posixpath.dirname(page.file.src_uri))})"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _PATH.sub(link, part) for part in parts)


def on_page_content(html: str, **_: Any) -> str:
    """Improve tables: widths, line breaks in code, and bars that Markdown requires to escape."""
    html = html.replace("<th>Description</th>", '<th class="description">Description</th>')
    return _CELL.sub(lambda cell: _CODE.sub(_render, cell.group()), html)


def _render(code: re.Match[str]) -> str:
    text = code[1].replace(r"\|", "|")
    if text.startswith("--") and " " not in text:
        return f'<code class="flag">{text}</code>'
    if _VARIABLE.fullmatch(text):
        return f"<code>{text.replace('_', '_<wbr>')}</code>"
    return f"<code>{_BREAK.sub('<wbr>', text)}</code>"
