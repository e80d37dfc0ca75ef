"""Names in code that say nothing to a reader of a stack trace."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VAGUE: Final = frozenset(
    {
        *("amiss", "anew", "arena", "beside", "bury", "contender", "deaf", "desk"),
        *("estrange", "fearless", "grip", "heard", "heirs", "hurt", "intake", "judge", "lookout"),
        *("mend", "pretend", "scene", "settler", "sight", "survey", "tender", "told", "trouble"),
        *("vanished", "verdict", "verdicts", "whoever", "world"),
    }
)
"""Words that are no terms of the field; each has a standard term in its place."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TOPS: Final = (
    "lab",
    "libs",
    "operators",
    "tools",
    "tests",
    "helm",
    "kubectl_slipway",
    "slipway_handler",
)


def find_vague_names(root: Path) -> list[str]:
    """Return the places at which a module, class, function or variable has a vague name."""
    found = []
    for top in _TOPS:
        for path in sorted((root / top).rglob("*.py")):
            names = [(path.stem, 1), *_list_names(ast.parse(path.read_text()))]
            found += [
                f"{path.relative_to(root)}:{line}: {name}" for name, line in names if is_vague(name)
            ]
    return found


def is_vague(name: str) -> bool:
    """Return whether a name contains a vague word; names of tests are sentences."""
    words = {word.lower() for word in _WORD.findall(name)}
    return not name.startswith("test_") and not words.isdisjoint(VAGUE)


def _list_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
