"""The examples of an operator, as a list of links."""

from __future__ import annotations

from pathlib import Path

from libs.common.project.sources import OperatorSource


def render_examples(operator: OperatorSource, root: Path) -> str:
    """Render links to the examples, each with the comment that its file begins with."""
    folder = f"operators/{operator.id}/examples"
    lines = [
        f"* [{path.name}](../../../{folder}/{path.name}){_describe(path)}"
        for path in sorted((root / folder).glob("*.yaml"))
    ]
    return "\n".join(["## Examples", "", *lines]) if lines else ""


def _describe(path: Path) -> str:
    comment = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("#").strip())
    # A mark of the demo stands before the sentence.
    text = " ".join(comment).removeprefix("demo:").strip()
    return f": {text}" if text else ""
