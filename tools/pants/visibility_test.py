"""The walls between packages hold: an import planted across them fails the goal of the gate."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A run of Pants stops at the first violation, so each is planted by itself.
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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lay out a small repository with the real rules."""
    root = tmp_path_factory.mktemp("checkout")
    for name in (
        *("pants", "pants.toml", "pants.ci.toml"),
        *("tools/pants/macros.py", "tools/python.sh"),
        *(f"3rdparty/python/build/{tool}.txt" for tool in ("pants", "pex", "uv")),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def list_dependencies(checkout: Path) -> subprocess.CompletedProcess[str]:
    # Without the daemon: Pants gives it 60 seconds to start, which a busy machine exceeds.
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
    try:
        done = list_dependencies(checkout)
    finally:
        (checkout / importer).write_text(FILES[importer])

    assert done.returncode == 1
    assert "DependencyRuleActionDeniedError" in done.stderr
    assert f"{importer}:lib has 1 dependency violation" in done.stderr.replace("../", "")
