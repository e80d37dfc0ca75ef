"""Write a new operator into a checkout. A failure leaves the checkout unchanged."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from libs.common.project.create import TEMPLATES, render
from libs.common.project.names import Names
from tools.cluster.errors import ToolError

SOURCES: Final = ("helm/podset", "deploy/kustomize/overlays")
"""Folders that a new operator gets copies of, relative to the root of a checkout."""
_OWN: Final = Path(__file__).with_name("template")
_STEPS: Final = _OWN / "steps.sh.tmpl"
_FILES: Final = {
    "operators/{id}/api.py": TEMPLATES / "api.py.tmpl",
    "operators/{id}/controller.py": TEMPLATES / "controller.py.tmpl",
    "operators/{id}/operator_test.py": TEMPLATES / "test_operator.py.tmpl",
    "operators/{id}/examples/{snake}.yaml": _OWN / "example.yaml.tmpl",
    "operators/{id}/BUILD": _OWN / "build.tmpl",
    "operators/{id}/CHANGELOG.md": _OWN / "CHANGELOG.md.tmpl",
    "operators/{id}/README.md": _OWN / "README.md.tmpl",
    "helm/{id}/templates/NOTES.txt": _OWN / "NOTES.txt.tmpl",
    "lab/fuzz/subjects/{id}.py": _OWN / "subject.py.tmpl",
    "lab/sweep/workloads/{id}.py": _OWN / "workload.py.tmpl",
    "tests/e2e/{id}_test.py": _OWN / "e2e_test.py.tmpl",
}
"""Templates of the files of a new operator."""
_OPTIONS: Final = {"finalizer": False, "cluster": False, "webhook": False}


def create(root: Path, names: Names) -> list[Path]:
    """Write the files of a new operator, and add it to the lists of operators.

    Returns:
        Files that were written or changed, relative to the root of the checkout.

    Raises:
        ToolError: The checkout already has an operator or chart with that name.
    """
    places = ("operators", "helm", "deploy/kustomize/overlays/kind")
    found = [f"{place}/{names.id}" for place in places if (root / place / names.id).exists()]
    if found:
        raise ToolError(f"There is already {' and '.join(found)}: choose another id")
    with tempfile.TemporaryDirectory() as directory:
        draft = Path(directory)
        _write_draft(root, draft, names)
        return _take_over(draft, root)


def add_layers(project: str, names: Names) -> str:
    """Add an operator to the import contract in pyproject.toml that defines the layers."""
    found = re.search(
        r'name = "Layers of an operator"\n.*?containers = \[\n(.*?)\]', project, re.DOTALL
    )
    if found is None:
        raise ToolError('pyproject.toml: the contract "Layers of an operator" is not there')
    packages = sorted([*found[1].splitlines(), f'  "operators.{names.id}",'])
    return project[: found.start(1)] + "\n".join(packages) + "\n" + project[found.end(1) :]


def add_row(readme: str, names: Names) -> str:
    """Add an operator to the table of the README."""
    rows = list(re.finditer(r"^\| \[\w+\]\(operators/.*\n", readme, re.MULTILINE))
    if not rows:
        raise ToolError("README.md: the table of operators is not there")
    does = f"creates a ConfigMap for each item of a {names.kind}"
    cells = (f"[{names.id}](operators/{names.id}/README.md)", f"`{names.kind}`", does)
    row = f"| {' | '.join(cells)} | nothing yet |\n"
    return readme[: rows[-1].end()] + row + readme[rows[-1].end() :]


def _write_draft(root: Path, draft: Path, names: Names) -> None:
    """Write the new files into a draft, so that a failure leaves the checkout unchanged."""
    for source in SOURCES:
        (draft / source).parent.mkdir(parents=True, exist_ok=True)
        if (root / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(root / source, draft / source, symlinks=True, ignore=ignored)
        else:
            shutil.copy(root / source, draft / source)
    subprocess.run(["sh", "-eu", "-c", _fill(_STEPS, names)], cwd=draft, check=True)
    for path, template in _FILES.items():
        target = draft / path.format(id=names.id, snake=names.snake)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_fill(template, names))
    for name, change in (("pyproject.toml", add_layers), ("README.md", add_row)):
        (draft / name).write_text(change((root / name).read_text(), names))
    # The new names may sort differently and may not fit on a line.
    written = [str(draft / place) for place in (f"operators/{names.id}", "tests", "lab")]
    for words in (
        ("ruff", "check", "--quiet", "--no-cache", "--select=I", "--fix", *written),
        ("black", "--quiet", *written),
    ):
        subprocess.run([sys.executable, "-m", *words], cwd=draft, check=True)


def _fill(template: Path, names: Names) -> str:
    package = f"operators.{names.id}"
    place = {"package": "libs.common", "local": f"{package}.", "run": package}
    kind = {"kind": names.kind, "upper": names.snake.upper(), "snake": names.snake}
    more = {"plural": names.plural, "title": names.id.capitalize()}
    return render(template, (names,), _OPTIONS, {**place, **kind, **more})


def _take_over(draft: Path, root: Path) -> list[Path]:
    """Copy new and changed files of the draft, and links that do not exist yet."""
    taken = []
    for source in sorted(draft.rglob("*")):
        target = root / source.relative_to(draft)
        if source.is_dir() and not source.is_symlink():
            continue
        if target.is_symlink() or (target.exists() and target.read_bytes() == source.read_bytes()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target, follow_symlinks=False)
        taken.append(target.relative_to(root))
    return taken
