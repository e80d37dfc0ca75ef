"""A new project: its names, its files, and what is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from libs.common.project.create import HAND, create_project
from libs.common.project.errors import GenerateError
from libs.common.project.names import Names


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Backup", "backups"), ("Policy", "policies"), ("Gateway", "gateways"), ("Class", "classes")],
)
def test_plural_follows_from_the_kind(kind: str, plural: str) -> None:
    assert Names.build("backups", kind, "example.com").plural == plural


def test_error_lists_every_name_that_cannot_be_used() -> None:
    with pytest.raises(GenerateError) as caught:
        Names.build("My-Backups", "backup", "backups.example.com")

    assert [problem.split(" must ")[0] for problem in caught.value.problems] == [
        "the id 'My-Backups'",
        "the kind 'backup'",
    ]


@pytest.mark.parametrize("finalizer", [False, True])
@pytest.mark.parametrize("cluster", [False, True])
def test_files_are_python_that_has_the_chosen_options(
    tmp_path: Path, finalizer: bool, cluster: bool
) -> None:
    names = Names.build("tasks", "TaskPlan", "tasks.example.com")
    create_project(tmp_path / "new", names, finalizer=finalizer, cluster=cluster)

    texts = {name: (tmp_path / "new" / name).read_text() for name in HAND}
    for text in texts.values():
        ast.parse(text)
        assert "$" not in text
        assert "#?" not in text
    assert ("async def finalize" in texts["controller.py"]) == finalizer
    assert ('scope="Cluster"' in texts["api.py"]) == cluster
    assert "class TaskPlanSpec(" in texts["api.py"]


def test_folder_with_files_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(GenerateError, match="is not empty"):
        create_project(tmp_path, Names.build("tasks", "Task", "example.com"))

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
