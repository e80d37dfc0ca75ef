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
@pytest.mark.parametrize("webhook", [False, True])
def test_files_are_python_that_has_the_chosen_options(
    tmp_path: Path, finalizer: bool, cluster: bool, webhook: bool
) -> None:
    names = Names.build("tasks", "TaskPlan", "tasks.example.com")
    create_project(tmp_path / "new", names, finalizer=finalizer, cluster=cluster, webhook=webhook)

    texts = {name: (tmp_path / "new" / name).read_text() for name in HAND}
    for text in texts.values():
        ast.parse(text)
        assert "$" not in text
        assert "#?" not in text
        assert "#[" not in text
    assert ("async def finalize" in texts["controller.py"]) == finalizer
    assert ("def review_task_plan(" in texts["controller.py"]) == webhook
    assert ('scope="Cluster"' in texts["api.py"]) == cluster
    assert "class TaskPlanSpec(" in texts["api.py"]


def test_second_kind_has_a_controller_and_tests_of_its_own(tmp_path: Path) -> None:
    names = Names.build("tasks", "TaskPlan", "tasks.example.com")
    create_project(tmp_path / "new", names, second_kind="TaskRun")

    defined = {
        name: [
            node.name
            for node in ast.parse((tmp_path / "new" / name).read_text()).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for name in HAND
    }
    for names_of_file in defined.values():
        assert len(set(names_of_file)) == len(names_of_file)
    assert {"TaskPlan", "TaskRun", "TaskRunSpec"} <= set(defined["api.py"])
    assert {"reconcile", "reconcile_task_run"} <= set(defined["controller.py"])
    assert {"TestTaskPlanConformance", "TestTaskRunConformance"} <= set(defined["test_operator.py"])


@pytest.mark.parametrize("second", ["Task", "TASK"])
def test_second_kind_with_the_name_of_the_first_is_refused(tmp_path: Path, second: str) -> None:
    with pytest.raises(GenerateError, match="must have another name"):
        create_project(
            tmp_path / "new", Names.build("tasks", "Task", "example.com"), second_kind=second
        )

    assert not (tmp_path / "new").exists()


def test_folder_with_files_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(GenerateError, match="is not empty"):
        create_project(tmp_path, Names.build("tasks", "Task", "example.com"))

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
