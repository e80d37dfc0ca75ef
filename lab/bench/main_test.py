"""The command line of the benchmarks: what it prepares before it runs one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.bench.__main__ import main
from libs.common.testing.apiserver import ASSETS_VARIABLE


class Replaced(Exception):
    """The process would have been replaced."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace the build of the API server and the start of a benchmark."""

    def replace(_: str, arguments: Sequence[str]) -> None:
        raise Replaced(*arguments[1:])

    monkeypatch.setenv(ASSETS_VARIABLE, "")
    monkeypatch.setattr("tools.cluster.binaries.ensure_assets", lambda: tmp_path)
    monkeypatch.setattr(os, "execv", replace)
    return tmp_path


def run(*arguments: str) -> tuple[object, ...]:
    """Return the arguments with which Python would run the benchmark."""
    with pytest.raises(Replaced) as replaced:
        main(arguments)
    return replaced.value.args


def test_benchmark_gets_its_api_server_and_its_options(made: Path) -> None:
    assert run("podset", "--quick") == ("-m", "lab.bench.podset", "--quick")
    assert os.environ[ASSETS_VARIABLE] == str(made)


@pytest.mark.parametrize("arguments", [("library",), ("podset", "--help"), ("podset", "-h")])
def test_nothing_is_built_that_is_not_needed(made: Path, arguments: Sequence[str]) -> None:
    assert run(*arguments)[:2] == ("-m", f"lab.bench.{arguments[0]}")
    assert not os.environ[ASSETS_VARIABLE]


def test_chosen_api_server_is_kept(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASSETS_VARIABLE, "/chosen")

    run("podset")

    assert os.environ[ASSETS_VARIABLE] == "/chosen"
