"""The text that people read, by where they read it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.prose.text import Passage

_FENCE: Final = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2.*?$", re.MULTILINE | re.DOTALL)
_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"\]\([^)\s]*\)")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]+")
_PACKAGES: Final = ("lab", "libs", "operators", "tools", "kubectl_slipway", "slipway_handler")
_PROSE: Final = re.compile(r"(?:^|\s)[a-z]+ [a-z]+(?: [a-z]+)?")


def strip_markdown(text: str) -> str:
    """Replace code, links' targets and fences by blanks; the lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    for pattern in (_FENCE, _CODE, _LINK):
        text = pattern.sub(blank, text)
    return text


def read_start(root: Path) -> Iterator[Passage]:
    """Yield the pages at the root, and README and CHANGELOG of each operator, chart and package."""
    pages = [
        *root.glob("*.md"),
        *(root / ".github").rglob("*.md"),
        *(root / "operators").glob("*/*.md"),
        *(root / "libs").glob("*/*.md"),
        *(root / "helm").glob("*/README.md"),
        *(root / "kubectl_slipway").glob("*.md"),
        *(root / "slipway_handler").glob("*.md"),
    ]
    yield from _read_pages(root, pages)


def read_docs(root: Path) -> Iterator[Passage]:
    """Yield the pages of docs that people write, without decisions; comments of examples."""
    pages = [
        page
        for page in (root / "docs").rglob("*.md")
        if "adr" not in page.relative_to(root).parts
        and not re.match(r"docs/reference/[a-z-]+/", page.relative_to(root).as_posix())
    ]
    yield from _read_pages(root, pages)
    for path in sorted(root.glob("operators/*/examples/*.yaml")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            _, mark, comment = line.partition("# ")
            if mark:
                yield Passage(str(path.relative_to(root)), number, strip_markdown(comment))


def read_decisions(root: Path) -> Iterator[Passage]:
    """Yield the architecture decision records."""
    yield from _read_pages(root, (root / "docs" / "adr").glob("*.md"))


def read_descriptions(root: Path) -> Iterator[Passage]:
    """Yield the descriptions in the CRDs, which `kubectl explain` shows."""
    for path in sorted(root.glob("helm/*/files/crds/*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            for where, text in _walk(document, ""):
                yield Passage(f"{path.relative_to(root)}{where}", 0, strip_markdown(text))


def read_charts(root: Path) -> Iterator[Passage]:
    """Yield descriptions, values, notes and templates of the charts, alert texts included."""
    for path in sorted(root.glob("helm/*/Chart.yaml")):
        described = yaml.safe_load(path.read_text())["description"]
        yield Passage(str(path.relative_to(root)), 0, strip_markdown(described))
    for path in sorted(root.glob("helm/*/values.yaml")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            _, mark, comment = line.partition("# ")
            if mark:
                yield Passage(str(path.relative_to(root)), number, strip_markdown(comment))
    for path in sorted(
        [
            *root.glob("helm/*/templates/NOTES.txt"),
            *(root / "helm" / "operator-common" / "templates").glob("*.tpl"),
            *root.glob("helm/*/files/alerts.yaml"),
        ]
    ):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = _TEMPLATE.sub(" ", line) if "{{/*" not in line else line
            if len(_WORD.findall(text)) >= 5:
                yield Passage(str(path.relative_to(root)), number, strip_markdown(text))


def read_cli(root: Path) -> Iterator[Passage]:
    """Yield help texts and messages of ./dev, of the tools behind it, and of the kubectl plugin."""
    for path in (*_sources(root / "tools"), *_sources(root / "kubectl_slipway")):
        yield from _strings(root, path)
        if path.parent.name == "dev":
            yield from _docstrings(root, path)


def read_messages(root: Path) -> Iterator[Passage]:
    """Yield condition and Event messages, log lines and errors of operators and libraries."""
    for top in ("libs", "operators", "slipway_handler"):
        for path in _sources(root / top):
            yield from _strings(root, path)


def read_docstrings(root: Path) -> Iterator[Passage]:
    """Yield docstrings and comments of operators, libraries, tools and the kubectl plugin."""
    for top in _PACKAGES:
        for path in _sources(root / top):
            if path.parent.name == "dev" and top == "tools":
                continue
            yield from _docstrings(root, path)
            yield from _comments(root, path)


def read_tests(root: Path) -> Iterator[Passage]:
    """Yield docstrings and comments of all tests, and of the test kit of the library."""
    for top in (*_PACKAGES, "tests", "helm", "deploy", "docs"):
        sources = {*_sources(root / top)} if top in _PACKAGES else set()
        for path in sorted((root / top).rglob("*.py")):
            if path not in sources and path.parent.name != "prose":
                yield from _docstrings(root, path)
                yield from _comments(root, path)


CORPORA: Final[dict[str, Callable[[Path], Iterator[Passage]]]] = {
    "readme": read_start,
    "docs": read_docs,
    "adr": read_decisions,
    "crds": read_descriptions,
    "charts": read_charts,
    "cli": read_cli,
    "messages": read_messages,
    "docstrings": read_docstrings,
    "tests": read_tests,
}


def _read_pages(root: Path, pages: Any) -> Iterator[Passage]:
    for page in sorted(pages):
        name = str(page.relative_to(root))
        for number, line in enumerate(strip_markdown(page.read_text()).splitlines(), 1):
            yield Passage(name, number, line)


def _walk(node: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "description" and isinstance(value, str):
                yield where, value
            elif key == "message" and isinstance(value, str):
                yield f"{where}.message", value
            else:
                yield from _walk(value, f"{where}.{key}" if key != "properties" else where)
    elif isinstance(node, list):
        for value in node:
            yield from _walk(value, where)


def _sources(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*.py"))
        if not path.name.endswith("_test.py")
        and path.name != "conftest.py"
        and not {"testing", "prose"} & set(path.relative_to(folder).parts)
    ]


def _documented(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the docstrings, those of attributes included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def _docstrings(root: Path, path: Path) -> Iterator[Passage]:
    for node in _documented(ast.parse(path.read_text())):
        assert isinstance(node.value, str)
        for offset, line in enumerate(strip_markdown(node.value).splitlines()):
            yield Passage(str(path.relative_to(root)), node.lineno + offset, line)


def _comments(root: Path, path: Path) -> Iterator[Passage]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.search(r"(?:^|\s)# (?!noqa|type:)(.+)$", line)
        if found and '"' not in line.partition("#")[2]:
            yield Passage(str(path.relative_to(root)), number, strip_markdown(found.group(1)))


def _strings(root: Path, path: Path) -> Iterator[Passage]:
    """Yield the literals that are sentences; a formatted value counts as a blank."""
    tree = ast.parse(path.read_text())
    skip = {id(node) for node in _documented(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skip.update(id(value) for value in node.values)
            text = "".join(
                (
                    part.value
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                    else "X"
                )
                for part in node.values
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skip
        ):
            text = node.value
        else:
            continue
        if len(_WORD.findall(text)) >= 3 and _PROSE.search(text):
            yield Passage(str(path.relative_to(root)), node.lineno, strip_markdown(text))
