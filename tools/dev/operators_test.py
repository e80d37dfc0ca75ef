"""Finding the operators of a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cluster.errors import ToolError
from tools.dev.operators import chart_of, check_operator, has_module, list_operators


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for operator in ("volumes", "podset"):
        folder = tmp_path / "operators" / operator
        folder.mkdir(parents=True)
        (folder / "__main__.py").touch()
    (tmp_path / "operators" / "unfinished").mkdir()
    return tmp_path


def test_operators_are_the_packages_that_can_be_run(root: Path) -> None:
    assert list_operators(root) == ["podset", "volumes"]


def test_unknown_operator_is_refused_with_the_names_that_there_are(root: Path) -> None:
    with pytest.raises(ToolError, match="'nosuch': choose one of podset, volumes"):
        check_operator("nosuch", root)


def test_missing_chart_is_said_with_its_path(root: Path) -> None:
    with pytest.raises(ToolError, match="helm/podset is missing"):
        chart_of("podset", root)


def test_modules_are_told_apart_by_whether_they_run() -> None:
    assert has_module("tools.dev")
    assert not has_module("tools.cluster")
    assert has_module("tools.cluster", runnable=False)
    assert not has_module("tools.nothing.at.all")
