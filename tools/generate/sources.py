"""Find the operators of the repository and load what they declare."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from libs.common.crd import CustomResource
from libs.common.metric_specs import MetricSpec
from libs.common.rbac import PolicyRule
from libs.common.settings import CommonSettings
from tools.generate.errors import GenerateError

ROOT = Path(__file__).resolve().parents[2]
"""The root of the repository that this module is a part of."""


@dataclass(frozen=True, slots=True)
class OperatorSource:
    """What an operator declares.

    Attributes:
        id: Id of the operator.
        resources: Models of its kinds, in every version.
        rules: Permissions that it asks for.
        settings: Its settings.
        metrics: Its own metrics, without those of the framework.
    """

    id: str
    resources: tuple[type[CustomResource], ...]
    rules: tuple[PolicyRule, ...]
    settings: type[CommonSettings]
    metrics: tuple[MetricSpec, ...] = ()

    def path_of(self, module: str) -> str:
        """Return the path from the root of a module of the operator, for headers."""
        return f"operators/{self.id}/{module}"

    def kinds(self) -> dict[tuple[str, str], list[type[CustomResource]]]:
        """Return the models by group and kind, versions in the order that was declared."""
        kinds: dict[tuple[str, str], list[type[CustomResource]]] = {}
        for model in self.resources:
            kind = model.crd_meta.kind
            kinds.setdefault((kind.group, kind.kind), []).append(model)
        return kinds


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


def source_path(model: type, root: Path = ROOT) -> str:
    """Return the path from the root of the file that defines a class."""
    path = Path(inspect.getfile(model)).resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _load(root: Path, operator_id: str, problems: list[str]) -> OperatorSource | None:
    package = f"operators.{operator_id}"
    found = {}
    for module, name in (("api", "RESOURCES"), ("rbac", "RULES"), ("settings", "Settings")):
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
    return OperatorSource(
        operator_id,
        tuple(found["RESOURCES"]),
        tuple(found["RULES"]),
        found["Settings"],
        tuple(own),
    )


def _import(root: Path, name: str) -> ModuleType | None:
    """Import a module if the repository has it, so that its own errors show as they are."""
    path = root.joinpath(*name.split("."))
    if not path.with_suffix(".py").is_file() and not (path / "__init__.py").is_file():
        return None
    return importlib.import_module(name)
