"""Example manifests that the demo applies: those whose first line says what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.cluster.errors import ToolError
from tools.dev.operators import ROOT

_MARK: Final = "# demo:"


@dataclass(frozen=True, slots=True)
class Example:
    """One example file and its description."""

    operator: str
    path: Path
    shows: str


def parse_mark(text: str) -> str | None:
    """Return what a file says that it shows, or None when it is not for the demo."""
    first = text.partition("\n")[0].strip()
    return first.removeprefix(_MARK).strip() if first.startswith(_MARK) else None


def find_examples(operator: str, root: Path = ROOT) -> list[Example]:
    """Return the examples of an operator for the demo, by file name."""
    paths = sorted((root / "operators" / operator / "examples").glob("*.yaml"))
    marks = [(path, parse_mark(path.read_text())) for path in paths]
    return [Example(operator, path, shows) for path, shows in marks if shows is not None]


def find_all_examples(operators: Sequence[str], root: Path = ROOT) -> list[Example]:
    """Return the examples of several operators for the demo.

    Raises:
        ToolError: There is none.
    """
    found = [example for operator in operators for example in find_examples(operator, root)]
    if not found:
        raise ToolError(
            f"{', '.join(operators)}: nothing to show on a bare cluster, as no example starts with"
            f" `{_MARK}`; `./dev demo cloud` shows compute and clusters with simulated machines"
        )
    return found
