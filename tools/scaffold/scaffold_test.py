"""A new operator: its names, and that a failure leaves the checkout unchanged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from tools.cluster.errors import ToolError
from tools.scaffold.create import create
from tools.scaffold.names import build_names, rename
from tools.scaffold.tutorial import PAGE, SOURCES

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = (*SOURCES, str(PAGE), "pyproject.toml", "README.md")
GENERATED: Final = ("Chart.yaml", "README.md", "values.yaml", "values.schema.json")
"""Files of a chart that contain generated parts."""
WORDS: Final = (
    *("greet", "podset", "people", "person", "everybody", "phrase", "hello", "good morning"),
    *("ada", "grace", "barbara", "team"),
)
"""Words about the operator of the tutorial, which must not remain in a new operator."""
BLOCK: Final = re.compile(r"BEGIN (generated|metadata).*?END \1", re.DOTALL)
"""A generated part of a file."""
OWNED: Final = {
    "operators": (8, 207),
    "lab": (2, 20),
    "tests": (1, 32),
    "helm": (4, 62),
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


def test_each_name_of_the_tutorial_has_one_in_its_place() -> None:
    names = build_names("archives", "BackupPolicy", "", "archives.slipway.dev")

    renamed = rename("greeter: GREETING, Greeting, greetings.tutorial.slipway.dev", names)

    assert renamed == "archives: BACKUP_POLICY, BackupPolicy, backuppolicies.archives.slipway.dev"
    assert rename("plan_greeting", names, python=True) == "plan_backup_policy"


def test_all_names_that_cannot_be_used_are_told_at_once() -> None:
    with pytest.raises(
        ToolError, match=r"id 'My-Backups' must be 2 to 20 .*; the kind 'backup' must be 2 to 30 "
    ):
        build_names("My-Backups", "backup", "", group="backups.example.com")


def test_nothing_of_the_tutorial_is_left_in_a_new_operator(checkout: Path) -> None:
    before = list_files(checkout)
    create(checkout, build_names("archives", "BackupPolicy", "", "archives.slipway.dev"))

    made = list_files(checkout) - before
    assert checkout / "operators/archives/operator_test.py" in made
    assert checkout / "helm/archives/templates/NOTES.txt" in made
    assert checkout / "tests/e2e/archives_test.py" in made
    assert (checkout / "operators/archives/examples/backup_policy.yaml") in made
    left = {
        path.relative_to(checkout)
        for path in made
        for word in WORDS
        if path.name not in GENERATED
        if word in str(path.relative_to(checkout)).lower()
        or re.search(rf"(?<![a-z]){word}", path.read_text().lower())
    }
    assert left == set()


def test_people_own_few_files_and_lines(checkout: Path) -> None:
    before = list_files(checkout)
    create(checkout, build_names("archives", "BackupPolicy", "", "archives.slipway.dev"))

    # Generated files, such as __main__.py, do not exist yet.
    made = list_files(checkout) - before
    for folder, (files, lines) in OWNED.items():
        owned = [path for path in made if path.is_relative_to(checkout / folder)]
        texts = [BLOCK.sub("", path.read_text()) for path in owned]
        written = sum(len(text.splitlines()) for text in texts)
        assert (len(owned), written) <= (files, lines), folder


def test_operator_is_named_where_operators_are_listed(checkout: Path) -> None:
    create(checkout, build_names("archives", "BackupPolicy", "", "archives.slipway.dev"))

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
        create(checkout, build_names("podset", "PodSet", "", "podset.slipway.dev"))

    assert list_files(checkout) == before
