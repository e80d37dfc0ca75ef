"""Flaky tests are named, and pass only if they are known."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from tools.gate import tests
from tools.gate.counts import parse_report
from tools.gate.tests import main, mark_passed, read_failed, read_known

_ONCE = """
import pathlib
def test_once():
    flag = pathlib.Path(__file__).with_name("flag")
    flag.touch() if (first := not flag.exists()) else None
    assert not first
"""


class RunStep(Protocol):
    def __call__(self, text: str, known: str = "") -> int: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStep:
    def run(text: str, known: str = "") -> int:
        (tmp_path / "some_test.py").write_text(text)
        (tmp_path / "flaky.txt").write_text(known)
        monkeypatch.setattr(tests, "FLAKY", tmp_path / "flaky.txt")
        monkeypatch.setattr(tests, "ROOT", tmp_path)
        return main([str(tmp_path / "report.xml"), "--", str(tmp_path), "--rootdir", str(tmp_path)])

    return run


def test_passing_tests_pass(run: RunStep) -> None:
    assert run("def test_it(): pass") == 0


def test_failure_that_repeats_fails(run: RunStep, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("def test_it(): assert 0", "some_test::test_it  # chance") == 1
    assert "Flaky" not in capfd.readouterr().out


def test_new_flaky_test_is_named_and_fails(run: RunStep, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(_ONCE) == 1
    assert "Flaky, passed when it was repeated: some_test::test_once" in capfd.readouterr().out


def test_known_flaky_test_counts_as_passed(run: RunStep, tmp_path: Path) -> None:
    assert run(_ONCE, "some_test::test_once  # the flag of the first run") == 0
    assert parse_report((tmp_path / "report.xml").read_text()).failed == 0


def test_known_flaky_test_needs_a_cause() -> None:
    with pytest.raises(ValueError, match="has no cause"):
        read_known("some_test::test_once")


def test_other_failures_stay_in_the_report() -> None:
    report = (
        '<testsuite><testcase classname="a" name="x"><failure/></testcase>'
        '<testcase classname="a" name="y"><error/></testcase></testsuite>'
    )

    assert read_failed(mark_passed(report, {"a::x"})) == {"a::y"}
