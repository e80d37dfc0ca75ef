"""Changes of rendered pages; mkdocs calls them by their names."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

STYLES: Final = Path(__file__).with_name("site.css").read_text()
_BOOSTS: Final = (
    ("docs/faq", 4.0),
    ("docs/howto/", 3.0),
    ("docs/tutorial/", 2.0),
    ("docs/adr/", 0.3),
)
"""What users look for comes first in the search; references and decisions come later."""
_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_TITLE: Final = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_ROW: Final = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_TAG: Final = re.compile(r"<[^>]+>")
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
    for prefix, boost in _BOOSTS:
        if page.file.src_uri.startswith(prefix):
            page.meta.setdefault("search", {"boost": boost})

    def link(span: re.Match[str]) -> str:
        if files.get_file_from_path(span[1]) is None:
            return span[0]
        return f"[{span[0]}]({posixpath.relpath(span[1], posixpath.dirname(page.file.src_uri))})"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _PATH.sub(link, part) for part in parts)


def on_page_content(html: str, **_: Any) -> str:
    """Improve tables: widths, titles in cells, line breaks in code, and bars that are escaped."""
    html = _TABLE.sub(lambda table: _label_cells(table.group()), html)
    html = html.replace("<th>Description</th>", '<th class="description">Description</th>')
    return _CELL.sub(lambda cell: _CODE.sub(_render, cell.group()), html)


def _label_cells(table: str) -> str:
    """Repeat the heading of the column in each cell, for screens that show a row as a card."""
    titles = [_TAG.sub("", title) for title in _TITLE.findall(table)]

    def label(row: re.Match[str]) -> str:
        rest = iter(titles)
        return re.sub(r"<td\b", lambda _: _start_cell(next(rest, "")), row.group())

    return _ROW.sub(label, table)


def _start_cell(title: str) -> str:
    return f'<td data-label="{title}"' if title else "<td"


def _render(code: re.Match[str]) -> str:
    text = code[1].replace(r"\|", "|")
    if text.startswith("--") and " " not in text:
        return f'<code class="flag">{text}</code>'
    if _VARIABLE.fullmatch(text):
        return f"<code>{text.replace('_', '_<wbr>')}</code>"
    return f"<code>{_BREAK.sub('<wbr>', text)}</code>"
