"""How tools end."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tools.cluster.command_line import DEBUG_VARIABLE, Parser, run
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


def build_parser(epilog: str | None = None) -> Parser:
    text = "Bake.\n\n* One.\n* Two."
    parser = Parser(prog="./dev bake", description=text, epilog=epilog)
    parser.add_argument("--size", type=int, default=3, help="number of loaves")
    parser.add_argument("--oven", choices=["gas", "stone"], help="oven to use")
    return parser


def test_help_shows_defaults_choices_and_the_lines_of_a_list() -> None:
    text = build_parser().format_help()

    assert "Number of loaves. Defaults to 3." in text
    assert "Oven to use: gas, stone." in text
    assert "\n * One.\n * Two.\n" in text


def test_choices_that_the_epilog_explains_are_listed_once() -> None:
    text = build_parser(epilog="Ovens:\n  gas    hot\n  stone  hotter").format_help()

    assert text.count("stone") == 1


def test_help_lists_the_commands_of_a_command() -> None:
    parser = build_parser()
    parser.add_subparsers(dest="command").add_parser("bread", help="bake bread")

    assert "bread  Bake bread." in parser.format_help()
