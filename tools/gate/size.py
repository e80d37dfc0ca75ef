"""Compare the size of the checkout with budgets, which may shrink and grow only by a decision.

*Shipped* is each Python module that an operator, the consumer app, the kubectl plugin or the
handler package imports, directly or not. *Support* is every other module that is no test: tools,
laboratory, test kit. *Generated* is each tracked text file that a generator writes. Lines are
physical lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parents[2]
BUDGETS: Final = {"shipped": 76_900, "support": 58_600, "generated": 30_000}
"""Maximum number of lines. The aims are 70,000 shipped, 42,000 support, 30,000 generated lines."""

_PACKAGES: Final = ("kubectl_slipway", "lab", "libs", "operators", "slipway_handler", "tools")
_ROOTS: Final = re.compile(
    r"operators\.\w+(\.app)?\.__main__|operators\..*\.(redrive|producer)|operators\..*\.injector.*"
    r"|kubectl_slipway.*|slipway_handler.*"
)
_TEST: Final = re.compile(r"(_test|conftest)\.py$|^tests/")
_GENERATED: Final = re.compile(
    r"^deploy/kustomize/(base|components|crds)/.*\.ya?ml$|^deploy/.*(manifests|install)\.ya?ml$|^deploy/kube-state-metrics/"
    r"|^helm/[^/]+/(values\.schema\.json|README\.md|files/.*)$|\.lock$|go\.sum$|\.svg$"
    r"|^docs/reference/[^/]+/(api|conditions|settings|permissions|metrics)\.md$"
)


def main() -> int:
    """Print the sizes and return 1 if one is above its budget or modules import in a circle."""
    sizes = measure(ROOT)
    for name, budget in BUDGETS.items():
        print(f"{name:10} {sizes[name]:7,} of {budget:7,} lines")
    circle = find_circle()
    if circle:
        print(f"Modules that import each other in a circle: {', '.join(circle)}")
    over = [name for name, budget in BUDGETS.items() if sizes[name] > budget]
    if over:
        print(f"Above the budget: {', '.join(over)}. Delete something, or raise it with an ADR.")
    return int(bool(over or circle))


def measure(root: Path) -> Counter[str]:
    """Count the lines of each kind in a checkout."""
    listed = subprocess.run(
        ("git", "ls-files", "-z"), cwd=root, capture_output=True, text=True, check=True
    )
    files = [name for name in listed.stdout.split("\0") if (root / name).is_file()]
    shipped = find_shipped()
    sizes: Counter[str] = Counter()
    for name in files:
        if _GENERATED.search(name):
            sizes["generated"] += _count_lines(root / name)
        elif name.endswith(".py") and not _TEST.search(name):
            module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            sizes["shipped" if module in shipped else "support"] += _count_lines(root / name)
    return sizes


def find_shipped() -> set[str]:
    """Return the modules that are part of an image or a package."""
    graph = _build_graph()
    roots = {
        name
        for name in graph.modules
        if _ROOTS.fullmatch(name) and not name.endswith(("_test", "conftest"))
    }
    upstream = set().union(*(graph.find_upstream_modules(name) for name in roots))
    modules = roots | upstream
    # Importing a module imports its packages.
    parents = {".".join(name.split(".")[:depth]) for name in modules for depth in range(1, 9)}
    return modules | parents


def find_circle() -> list[str]:
    """Return modules that import each other in a circle, if there are any.

    Packages are left out: importing the modules that it re-exports makes no circle of a package.
    """
    graph = _build_graph()
    modules = {name for name in graph.modules if not graph.find_children(name)}
    imports = {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as err:
        return [str(name) for name in err.args[1]]
    return []


@cache
def _build_graph() -> grimp.ImportGraph:
    return grimp.build_graph(*_PACKAGES, cache_dir=None)


def _count_lines(path: Path) -> int:
    try:
        return path.read_text().count("\n")
    except UnicodeDecodeError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
