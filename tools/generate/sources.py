"""Find the operators of the repository and load what they declare."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource
from libs.common.runtime.operator import Operator

ROOT = Path(__file__).resolve().parents[2]
"""The root of the repository that this module is a part of."""


LIBRARY_CHART: Final = Path("helm", "operator-common")
"""The library chart, from the root of the repository."""
SCHEMA: Final = Path("helm", "values.schema.json")
"""The schema of the values, to which the charts link."""
GENERATOR: Final = "tools/generate"
"""What generated files name as their generator."""


def find_operators(root: Path) -> list[str]:
    """Return the ids of the operators: the directories that have a controller."""
    return sorted(path.parent.name for path in root.glob("operators/*/controller.py"))


def load_operators(root: Path, ids: Iterable[str] | None = None) -> list[OperatorSource]:
    """Load operators by id, all of them by default.

    Raises:
        GenerateError: Modules or names are missing; lists all of them.
    """
    problems: list[str] = []
    chosen = find_operators(root) if ids is None else list(ids)
    operators = [_load(root, operator_id, problems) for operator_id in chosen]
    if problems:
        raise GenerateError(problems)
    return [operator for operator in operators if operator is not None]


def _load(root: Path, operator_id: str, problems: list[str]) -> OperatorSource | None:
    package = f"operators.{operator_id}"
    found = {}
    for module, name in (("api", "RESOURCES"), ("controller", "OPERATOR")):
        loaded = _import(root, f"{package}.{module}")
        if loaded is None:
            problems.append(f"operators/{operator_id}/{module}.py is missing; it defines {name}")
        elif not hasattr(loaded, name):
            problems.append(f"operators/{operator_id}/{module} must define {name}")
        else:
            found[name] = getattr(loaded, name)
    if len(found) < 2:
        return None
    operator: Operator = found["OPERATOR"]
    return OperatorSource(
        id=operator_id,
        resources=tuple(found["RESOURCES"]),
        rules=operator.rules(),
        settings=operator.settings,
        metrics=tuple(operator.metrics),
        code=Path("operators", operator_id),
        chart=Path("helm", operator_id),
        generator=GENERATOR,
        summary=operator.summary,
        modules=_find_modules(root / "operators" / operator_id),
    )


def _find_modules(folder: Path) -> dict[str, str]:
    """Return the files of an operator that declare something instead of its controller."""
    files = {
        "api": ("api", "api.py"),
        "metrics": ("metrics.py",),
        "settings": ("settings.py",),
    }
    found = {
        part: [each for each in names if (folder / each).exists()] for part, names in files.items()
    }
    return {part: names[0] for part, names in found.items() if names}


def _import(root: Path, name: str) -> ModuleType | None:
    """Import a module if the repository has it, so that its own errors show as they are."""
    path = root.joinpath(*name.split("."))
    if not path.with_suffix(".py").is_file() and not (path / "__init__.py").is_file():
        return None
    return importlib.import_module(name)
