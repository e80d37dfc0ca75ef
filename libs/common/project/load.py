"""Load the declarations of the operator of a project."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Final

from libs.common.project.create import PACKAGE
from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource

GENERATOR: Final = f"{PACKAGE}.project"
CHART: Final = Path("chart")
"""Folder of the chart, relative to the root of a project."""


def load_project(root: Path) -> OperatorSource:
    """Import `api` and `controller` of a project, and return their declarations.

    Raises:
        GenerateError: A module or a name is missing.
    """
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    found = {}
    for module, name in (("api", "RESOURCES"), ("controller", "OPERATOR")):
        if not (root / f"{module}.py").is_file():
            raise GenerateError([f"{root / module}.py is missing; it defines {name}"])
        try:
            found[name] = getattr(importlib.import_module(module), name)
        except AttributeError:
            raise GenerateError([f"{root / module}.py must define {name}"]) from None
    operator = found["OPERATOR"]
    webhooks = getattr(sys.modules["controller"], "WEBHOOKS", ())
    return OperatorSource(
        id=operator.id,
        resources=tuple(found["RESOURCES"]),
        rules=operator.rules(),
        settings=operator.settings,
        metrics=tuple(operator.metrics),
        webhooks=tuple(each.to_chart() for each in webhooks),
        code=Path(),
        chart=CHART,
        generator=GENERATOR,
        summary=operator.summary,
        all_namespaces=operator.all_namespaces,
        modules={"api": "api.py"},
    )
