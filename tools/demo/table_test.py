"""What the demo says of an object."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tools.cluster.errors import ToolError
from tools.demo.examples import find_all_examples, find_examples, parse_mark
from tools.demo.table import build_row, render_rows


def build_item(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "PodSet",
        "metadata": {"name": "x", "generation": 2, "creationTimestamp": "2026-11-21T04:00:00Z"},
        "status": {"conditions": list(conditions)},
    }


def ready(status: str = "True", generation: int = 2) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "observedGeneration": generation}
    return {**condition, "reason": "PodsReady", "message": "3 of 3 pods [ready]"}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (build_item(ready()), True),
        (build_item({"type": "Progressing", "status": "False"}, ready()), True),
        (build_item(ready("False")), False),
        (build_item(ready(generation=1)), False),
        (build_item({"type": "Progressing", "status": "True"}, ready("False")), False),
        (build_item(), False),
    ],
    ids=["ready", "ready among others", "not ready", "of an older spec", "progressing", "none yet"],
)
def test_object_is_ready_by_its_ready_condition(item: dict[str, Any], expected: bool) -> None:
    assert build_row(item).ready is expected


def test_object_without_a_spec_is_ready_once_it_is_there() -> None:
    metadata = {"name": "config", "creationTimestamp": "2026-11-21T04:00:00Z"}

    assert build_row({"kind": "ConfigMap", "metadata": metadata, "data": {}}).ready


def test_table_shows_age_and_message_as_they_are() -> None:
    output = io.StringIO()
    console = Console(file=output, width=120)
    now = datetime(2026, 11, 21, 4, 0, 7, tzinfo=UTC)
    console.print(render_rows([build_row(build_item(ready()))], now))

    assert "7 s" in output.getvalue()
    assert "3 of 3 pods [ready]" in output.getvalue()


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("# demo: Three pods.\nkind: X\n", "Three pods."),
        ("# Three pods.\n# demo: no\n", None),
        ("kind: X\n", None),
    ],
)
def test_first_line_marks_a_file_for_the_demo(text: str, mark: str | None) -> None:
    assert parse_mark(text) == mark


def test_marked_examples_are_found_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "operators" / "podset" / "examples"
    folder.mkdir(parents=True)
    (folder / "b.yaml").write_text("# demo: Second.\n")
    (folder / "a.yaml").write_text("# demo: First.\n")
    (folder / "c.yaml").write_text("kind: Other\n")

    assert [one.shows for one in find_examples("podset", tmp_path)] == ["First.", "Second."]


def test_operators_without_an_example_for_the_demo_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="web, mail: nothing to show"):
        find_all_examples(["web", "mail"], tmp_path)
