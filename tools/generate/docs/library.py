"""Render the public API of the library: the modules, and what each exports."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from libs.common.project.create import PACKAGE
from libs.common.project.text import render_code, render_page, render_table
from libs.common.version import __version__
from tools.generate.sources import GENERATOR

PAGE: Final = Path("docs", "reference", "library.md")
PUBLIC: Final = (
    "runtime",
    "crd",
    "kinds",
    "plan",
    "conditions",
    "errors",
    "settings",
    "naming",
    "labels",
    "ownership",
    "reading",
    "quantity",
    "rbac",
    "metric_specs",
    "actions",
    "finalizers",
    "background",
    "webhooks",
    "client",
    "clock",
    "startup",
    "testing.conformance",
    "testing.harness",
    "testing.fakeapi",
    "testing.clock",
)
"""Modules that operators may rely on; all others are internal."""
_LIBRARY: Final = "libs.common"
_INTRODUCTION: Final = f"""\
Version {__version__}. The library is `libs.common` in this repository, and `{PACKAGE}` in the wheel
`slipway-operators`: `from {PACKAGE}.runtime import Controller` and
`from libs.common.runtime import Controller` import the same class.

[The runtime](../explanation/runtime.md) explains how it works, and lists
[bugs of other operators that it
prevents](../explanation/runtime.md#bugs-of-other-operators-that-the-runtime-prevents).

Only the names on this page are public. Before 1.0, a new minor version may change them; a new patch
version does not. The [changelog](../../libs/common/CHANGELOG.md) lists every change. All other
modules and names can change at any time."""


def render_library() -> dict[Path, str]:
    """Render the page."""
    sections = [_INTRODUCTION, *(_render_module(name) for name in PUBLIC)]
    text = render_page(
        "Public API of the library", sections, origin=f"{GENERATOR} from libs/common"
    )
    return {PAGE: text}


def list_names(module: str) -> dict[str, str]:
    """Return the names of a module of the library with the sentence about each, if there is one."""
    tree = _parse(f"{_LIBRARY}.{module}")
    exported = _read_exports(tree)
    found = dict(_describe(tree))
    if exported is None:
        return {name: text for name, text in found.items() if not name.startswith("_")}
    origins = dict(_list_imports(tree))
    return {
        name: found[name] if name in found else dict(_describe(_parse(origins[name])))[name]
        for name in exported
    }


def _render_module(module: str) -> str:
    text = ast.get_docstring(_parse(f"{_LIBRARY}.{module}")) or ""
    names = sorted(list_names(module).items())
    rows = [(render_code(name), said) for name, said in names if said]
    parts = [f"## {module}", _first_sentence(text), render_table(("Name", "Description"), rows)]
    if module == "kinds":
        parts.append(f"Kinds: {', '.join(render_code(name) for name, said in names if not said)}.")
    return "\n\n".join(parts)


def _parse(module: str) -> ast.Module:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


def _read_exports(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.name, node.module


def _describe(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that a module defines, with the first sentence of its docstring."""
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, _first_sentence(ast.get_docstring(node) or "")
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.TypeAlias(name=ast.Name(id=name)):
                yield name, _read_text(following)
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, _read_text(following)
            case _:
                pass


def _read_text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return _first_sentence(str(node.value.value))
    return ""


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    return paragraph.partition(". ")[0].rstrip(".:") + "." if paragraph else ""
