"""Read the docstrings under the members of an enum, which Python itself throws away."""

from __future__ import annotations

import ast
import inspect
import textwrap
from enum import StrEnum

from libs.common.crd.schema import reflow


def member_docs(enum: type[StrEnum]) -> dict[str, str]:
    """Return the docstring of each member by its value; empty if it has none."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(enum)))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    docs = {member.value: "" for member in enum}
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        text = _docstring(following)
        if text and node.targets[0].id in enum.__members__:
            docs[enum[node.targets[0].id].value] = reflow(text)
    return docs


def _docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else ""
    return ""
