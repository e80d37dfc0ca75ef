"""Write a new project: the three files that people edit, and the generated files."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

from libs.common.project.errors import GenerateError
from libs.common.project.names import Names
from libs.common.version import __version__

_TEMPLATES: Final = Path(__file__).with_name("template")
HAND: Final = ("api.py", "controller.py", "test_operator.py")
"""The files of a project that people edit."""
PACKAGE: Final = "slipway_operators"
"""Package name of the library in projects."""
_SETTINGS: Final = ("pyproject.toml",)


def create_project(
    root: Path, names: Names, *, finalizer: bool = False, cluster: bool = False
) -> list[Path]:
    """Write a new project into a folder that is empty or does not exist.

    Args:
        root: The folder.
        names: Names of the operator and its kind.
        finalizer: Whether the operator cleans up outside of Kubernetes before an object is deleted.
        cluster: Whether objects of the kind are cluster-scoped.

    Raises:
        GenerateError: The folder is not empty.
    """
    if root.exists() and any(root.iterdir()):
        raise GenerateError([f"{root} is not empty; choose a new folder"])
    texts = {name: _render(name, names, finalizer, cluster) for name in (*HAND, *_SETTINGS)}
    root.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
    return [root / name for name in texts]


def _render(name: str, names: Names, finalizer: bool, cluster: bool) -> str:
    """Render a template: lines that end with `#? option` or `#? no option` are kept or dropped."""
    options = {"finalizer": finalizer, "cluster": cluster}
    lines = []
    for line in (_TEMPLATES / f"{name}.tmpl").read_text(encoding="utf-8").splitlines():
        text, mark, condition = line.partition("  #? ")
        wanted = condition.removeprefix("no ")
        if not mark or options[wanted] != condition.startswith("no "):
            lines.append(text)
    return Template("\n".join([*lines, ""])).substitute(
        id=names.id,
        kind=names.kind,
        # In isort order.
        classes=", ".join(sorted(("ConditionType", "Reason", names.kind))),
        upper=names.snake.upper(),
        snake=names.snake,
        plural=names.plural,
        group=names.group,
        version=__version__,
        package=PACKAGE,
    )
