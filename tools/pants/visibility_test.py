"""The walls between packages hold: an import planted across them fails the goal of the gate."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A run of Pants takes some seconds and stops at the first violation, so few of them are tried.
TOOLS = 'python_package(tests=False, overrides={"pants/macros.py": {"skip_mypy": True}})\n'
OPERATOR = "operator_visibility()\n\npython_package(tests=False)\n"
FILES = {
    "conftest.py": "",
    "3rdparty/python/default.lock": "",
    "libs/BUILD": "library_visibility()\n\npython_package(tests=False)\n",
    "libs/shared.py": "",
    "operators/BUILD": 'python_sources(name="lib", sources=["__init__.py"])\n',
    "operators/__init__.py": "",
    "operators/first/BUILD": OPERATOR,
    "operators/first/main.py": "import libs.shared\n",
    "operators/second/BUILD": OPERATOR,
    "operators/second/main.py": "import libs.shared\n",
    "tools/BUILD": TOOLS,
    "tools/main.py": "import operators.first.main\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Lay out a small repository with the real rules."""
    for name in ("pants", "pants.toml", "pants.ci.toml", "tools/pants/macros.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def list_dependencies(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["./pants", "--no-pantsd", "--no-dynamic-ui", "dependencies", "::"],
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_operators_share_the_library_and_tools_see_operators(checkout: Path) -> None:
    done = list_dependencies(checkout)

    assert done.returncode == 0, done.stderr
    assert "libs/shared.py" in done.stdout
    assert "operators/first/main.py" in done.stdout


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("operators/first/main.py", "operators.second.main"),
        ("libs/shared.py", "operators.second.main"),
    ],
)
def test_import_across_a_wall_is_denied(checkout: Path, importer: str, imported: str) -> None:
    (checkout / importer).write_text(f"import {imported}\n")

    done = list_dependencies(checkout)

    assert done.returncode == 1
    assert "DependencyRuleActionDeniedError" in done.stderr
    assert f"{importer}:lib has 1 dependency violation" in done.stderr.replace("../", "")
