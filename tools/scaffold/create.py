"""Write a new operator into a checkout, all of it or nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.cluster.errors import ToolError
from tools.scaffold.names import Names
from tools.scaffold.tutorial import PAGE, follow


def create(root: Path, names: Names) -> list[Path]:
    """Write the files of a new operator, and name it where operators are listed.

    Returns:
        What was written or changed, from the root of the checkout.

    Raises:
        ToolError: The checkout has something of that name already.
    """
    places = [Path("operators", names.id), Path("helm", names.id)]
    end_to_end = Path("tests/e2e", f"{names.id}_test.py")
    taken = [path for path in (*places, end_to_end) if (root / path).exists()]
    if taken:
        raise ToolError(f"There is already {' and '.join(map(str, taken))}: choose another id")
    lists = {
        Path("pyproject.toml"): add_layers((root / "pyproject.toml").read_text(), names),
        Path("README.md"): add_row((root / "README.md").read_text(), names),
    }
    with tempfile.TemporaryDirectory() as directory:
        draft = Path(directory)
        _write_draft(root, draft, names)
        for place in places:
            shutil.copytree(draft / place, root / place, symlinks=True)
        shutil.copy(draft / end_to_end, root / end_to_end)
    for path, text in lists.items():
        (root / path).write_text(text)
    return [*places, end_to_end, *lists]


def add_layers(project: str, names: Names) -> str:
    """Add an operator to the contract of layers in pyproject.toml."""
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
    does = f"keeps a ConfigMap for each name of a {names.kind}"
    cells = (f"[{names.id}](operators/{names.id}/README.md)", f"`{names.kind}`", does)
    row = f"| {' | '.join(cells)} | `helm install {names.id} helm/{names.id}` |\n"
    return readme[: rows[-1].end()] + row + readme[rows[-1].end() :]


def _write_draft(root: Path, draft: Path, names: Names) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "helm/podset", draft / "helm/podset", symlinks=True, ignore=ignored)
    (draft / "operators/podset").mkdir(parents=True)
    shutil.copy(root / "operators/podset/BUILD", draft / "operators/podset")
    follow(draft, names, (root / PAGE).read_text())
    # Other names have another order and another length.
    settings = ("--config", str(root / "pyproject.toml"))
    written = [str(draft / "operators" / names.id), str(draft / "tests")]
    for words in (
        ("ruff", "check", "--quiet", "--select=I", "--fix", *settings, *written),
        ("black", "--quiet", *settings, *written),
    ):
        subprocess.run([sys.executable, "-m", *words], cwd=draft, check=True)
