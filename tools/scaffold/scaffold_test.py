"""A new operator: its names, and that a failure leaves the checkout unchanged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from libs.common.project.names import Names
from tools.cluster.errors import ToolError
from tools.scaffold.__main__ import main
from tools.scaffold.create import SOURCES, create

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = (*SOURCES, "pyproject.toml", "README.md")
ARCHIVES: Final = Names("archives", "BackupPolicy", "backuppolicies", "archives.slipway.dev")
GENERATED: Final = ("Chart.yaml", "README.md", "values.yaml", "values.schema.json")
"""Files of a chart that contain generated parts."""
WORD: Final = "podset"
"""The operator whose chart and overlays are copied."""
BLOCK: Final = re.compile(r"BEGIN (generated|metadata).*?END \1", re.DOTALL)
"""A generated part of a file."""
OWNED: Final = {
    "operators": (7, 193),
    "lab": (2, 20),
    "tests": (1, 32),
    "helm": (4, 68),
    "deploy": (2, 33),
}
"""Maximum files and lines of a new operator that people maintain, by folder; only lower them."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create a checkout with only the files that a new operator is created from."""
    for name in COPIED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def list_files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def test_all_names_that_cannot_be_used_are_told_at_once() -> None:
    with pytest.raises(
        ToolError, match=r"id 'My-Backups' must be 2 to 20 .*; the kind 'backup' must be 2 to 30 "
    ):
        main(["My-Backups", "--kind", "backup", "--group", "backups.example.com"])


def test_word_of_python_is_no_name() -> None:
    with pytest.raises(ToolError, match=r"id 'import' must be .*; the kind 'None' must be"):
        main(["import", "--kind", "None", "--group", "backups.example.com"])


def test_nothing_of_podset_is_left_in_a_new_operator(checkout: Path) -> None:
    before = list_files(checkout)
    create(checkout, ARCHIVES)

    made = list_files(checkout) - before
    assert checkout / "operators/archives/operator_test.py" in made
    assert checkout / "helm/archives/templates/NOTES.txt" in made
    assert checkout / "tests/e2e/archives_test.py" in made
    assert (checkout / "operators/archives/examples/backup_policy.yaml") in made
    left = {
        path.relative_to(checkout)
        for path in made
        if path.name not in GENERATED
        if WORD in f"{path.relative_to(checkout)} {path.read_text()}".lower()
    }
    assert left == set()


def test_people_own_few_files_and_lines(checkout: Path) -> None:
    before = list_files(checkout)
    create(checkout, ARCHIVES)

    # Generated files, such as __main__.py, do not exist yet.
    made = list_files(checkout) - before
    for folder, (files, lines) in OWNED.items():
        owned = [path for path in made if path.is_relative_to(checkout / folder)]
        texts = [BLOCK.sub("", path.read_text()) for path in owned]
        written = sum(len(text.splitlines()) for text in texts)
        assert (len(owned), written) <= (files, lines), folder


def test_operator_is_named_where_operators_are_listed(checkout: Path) -> None:
    create(checkout, ARCHIVES)

    layers = (checkout / "pyproject.toml").read_text()
    assert '\n  "operators.archives",\n  "operators.' in layers
    assert (
        "| [archives](operators/archives/README.md) | `BackupPolicy` |"
        in (checkout / "README.md").read_text()
    )


def test_operator_that_is_there_is_left_alone(checkout: Path) -> None:
    (checkout / "operators/podset").mkdir(parents=True)
    before = list_files(checkout)

    with pytest.raises(ToolError, match="already operators/podset and helm/podset and"):
        create(checkout, Names("podset", "PodSet", "podsets", "podset.slipway.dev"))

    assert list_files(checkout) == before
