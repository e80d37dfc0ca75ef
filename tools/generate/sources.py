"""Find the operators of the repository and load what they declare."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from libs.common.metric_specs import MetricSpec
from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource

ROOT = Path(__file__).resolve().parents[2]
"""The root of the repository that this module is a part of."""


LIBRARY_CHART: Final = Path("helm", "operator-common")
"""The library chart, from the root of the repository."""
GENERATOR: Final = "tools/generate"
"""What generated files name as their generator."""


def find_operators(root: Path) -> list[str]:
    """Return the ids of the operators: the directories that have an `api` package."""
    return sorted(path.parents[1].name for path in root.glob("operators/*/api/__init__.py"))


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
    for module, name in (
        ("api", "RESOURCES"),
        ("settings", "Settings"),
        ("controller", "OPERATOR"),
    ):
        loaded = _import(root, f"{package}.{module}")
        if loaded is None:
            problems.append(f"operators/{operator_id}/{module}.py is missing; it defines {name}")
        elif not hasattr(loaded, name):
            problems.append(f"operators/{operator_id}/{module} must define {name}")
        else:
            found[name] = getattr(loaded, name)
    metrics = _import(root, f"{package}.metrics")
    own: Sequence[MetricSpec] = getattr(metrics, "METRICS", ())
    if len(found) < 3:
        return None
    # An operator that does not derive its permissions lists them.
    listed = _import(root, f"{package}.rbac")
    rules = found["OPERATOR"].rules() if listed is None else listed.RULES
    return OperatorSource(
        id=operator_id,
        resources=tuple(found["RESOURCES"]),
        rules=tuple(rules),
        settings=found["Settings"],
        metrics=tuple(own),
        code=Path("operators", operator_id),
        chart=Path("helm", operator_id),
        generator=GENERATOR,
        rules_module="controller.py" if listed is None else "rbac.py",
    )


def _import(root: Path, name: str) -> ModuleType | None:
    """Import a module if the repository has it, so that its own errors show as they are."""
    path = root.joinpath(*name.split("."))
    if not path.with_suffix(".py").is_file() and not (path / "__init__.py").is_file():
        return None
    return importlib.import_module(name)
