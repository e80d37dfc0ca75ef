"""How tools end."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tools.cluster.command_line import DEBUG_VARIABLE, run
from tools.cluster.errors import ToolError


def fail(error: BaseException) -> int:
    raise error


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))


def test_status_is_that_of_the_tool() -> None:
    assert run(lambda: 3) == 3
    assert run(lambda: None) == 0


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ToolError("No [docker] answers"), "Error: No [docker] answers\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "No space left on device: /x; "),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "set SLIPWAY_CACHE to a"),
        (TimeoutError("The broker did not become healthy"), "did not become healthy\n"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_went_wrong_is_one_line(
    error: Exception, reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lambda: fail(error)) == 1

    said = capsys.readouterr().err
    assert reported in said
    assert len(said.splitlines()) == 1


def test_interruption_says_that_the_command_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda: fail(KeyboardInterrupt())) == 130
    assert "run the command again" in capsys.readouterr().err


def test_traceback_comes_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEBUG_VARIABLE, "1")

    with pytest.raises(ToolError):
        run(lambda: fail(ToolError("No")))
