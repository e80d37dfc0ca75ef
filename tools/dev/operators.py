"""Find the operators of this checkout."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

from tools.cluster.errors import ToolError, UsageError

ROOT: Final = Path(__file__).parents[2]


def list_operators(root: Path = ROOT) -> list[str]:
    """Return the ids of all operators that can run."""
    return sorted(path.parent.name for path in (root / "operators").glob("*/__main__.py"))


def check_operator(operator: str, root: Path = ROOT) -> str:
    """Return the id if there is such an operator.

    Raises:
        UsageError: There is no such operator; the message lists the known ids.
    """
    known = list_operators(root)
    if operator not in known:
        raise UsageError(f"There is no operator {operator!r}: choose one of {', '.join(known)}")
    return operator


def chart_of(operator: str, root: Path = ROOT) -> Path:
    """Return the chart of an operator.

    Raises:
        ToolError: The operator has no chart.
    """
    chart = root / "helm" / operator
    if not (chart / "Chart.yaml").exists():
        raise ToolError(f"Operator {operator} has no chart: {chart} is missing")
    return chart


def environment_prefix(operator: str) -> str:
    """Return the prefix of the operator's environment variables."""
    return f"{operator.upper()}_"


def has_module(module: str, *, runnable: bool = True) -> bool:
    """Return whether the checkout has a module; if `runnable`, one that `python -m` can run."""
    try:
        found = importlib.util.find_spec(module)
        package = found is not None and found.submodule_search_locations is not None
        if found and package and runnable:
            return importlib.util.find_spec(f"{module}.__main__") is not None
    except ModuleNotFoundError:
        return False
    return found is not None
