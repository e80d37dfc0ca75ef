"""Checks that every generated file is what the generator makes now, and that it always is the same.

Fix a failure with `./dev generate`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.generate.__main__ import main
from tools.generate.drift import (
    FIX_COMMAND,
    OWNED,
    Drift,
    find_drift,
    find_orphans,
    render_report,
    write_files,
)
from tools.generate.render import render_all
from tools.generate.sources import ROOT

_RENDERED = render_all(ROOT)
_OWNED = ("out/*.txt",)
_PRINT_ALL = (
    "import json; from tools.generate.render import render_all; "
    "print(json.dumps({str(path): text for path, text in render_all().items()}))"
)


@pytest.mark.parametrize("path", _RENDERED, ids=str)
def test_file_is_up_to_date(path: Path) -> None:
    drifts = find_drift(ROOT, {path: _RENDERED[path]}, ())

    assert not drifts, render_report(drifts)


def test_nothing_generated_is_left_over() -> None:
    orphans = [Drift(path, "orphan") for path in find_orphans(ROOT, _RENDERED, OWNED)]

    assert not orphans, render_report(orphans)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_render_is_the_same_in_every_process(seed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _PRINT_ALL],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(run.stdout) == {str(path): text for path, text in _RENDERED.items()}


def test_drift_tells_missing_changed_and_orphan(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/changed.txt").write_text("old\n")
    (tmp_path / "out/orphan.txt").write_text("x\n")
    (tmp_path / "out/same.txt").write_text("same\n")
    rendered = {
        Path("out/changed.txt"): "new\n",
        Path("out/missing.txt"): "m\n",
        Path("out/same.txt"): "same\n",
    }

    drifts = find_drift(tmp_path, rendered, _OWNED)

    assert [(drift.path.name, drift.cause) for drift in drifts] == [
        ("changed.txt", "changed"),
        ("missing.txt", "missing"),
        ("orphan.txt", "orphan"),
    ]
    report = render_report(drifts)
    assert "-old\n+new\n" in report
    assert report.endswith(f"Run `{FIX_COMMAND}` and commit the result.")


def test_write_mends_every_drift_and_is_idempotent(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/orphan.txt").write_text("x\n")
    rendered = {Path("out/a.txt"): "a\n", Path("deep/er/b.txt"): "b\n"}

    assert len(write_files(tmp_path, rendered, _OWNED)) == 3
    assert write_files(tmp_path, rendered, _OWNED) == []
    assert not (tmp_path / "out/orphan.txt").exists()


def test_report_without_drift_is_empty() -> None:
    assert render_report([]) == ""


def test_command_checks_without_writing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--without-helm"]) == 0

    assert capsys.readouterr().out == "Everything is up to date.\n"
