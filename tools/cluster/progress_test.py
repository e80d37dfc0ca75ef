"""Without a terminal, steps are printed as lines, and commands end up in the log."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tools.cluster.errors import CommandFailed
from tools.cluster.progress import Progress, format_seconds


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def progress(tmp_path: Path, output: io.StringIO) -> Progress:
    return Progress(tmp_path / "log", Console(file=output, width=80), environ={})


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.84, "0.8 s"), (12.4, "12 s"), (59.4, "59 s"), (125, "2 min 05 s")]
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_steps_are_lines_without_a_terminal(progress: Progress, output: io.StringIO) -> None:
    with progress.step("Outer", "1 minute"), progress.step("Inner"):
        pass

    lines = output.getvalue().splitlines()
    assert lines[0] == "==> Outer (1 minute)"
    assert lines[1] == "  ==> Inner"
    assert lines[2].startswith("      done after")
    assert lines[3].startswith("    done after")


def test_lines_of_programs_are_shown_as_they_are(progress: Progress, output: io.StringIO) -> None:
    progress.say("[gw0] FAILED [/tmp/a] 7:0:-1:99")

    assert output.getvalue() == "[gw0] FAILED [/tmp/a] 7:0:-1:99\n"


def test_failed_step_says_so(progress: Progress, output: io.StringIO) -> None:
    with pytest.raises(RuntimeError), progress.step("Doomed"):
        raise RuntimeError

    assert "failed after" in output.getvalue()


def test_output_of_a_command_is_returned_and_logged(progress: Progress) -> None:
    text = progress.run([sys.executable, "-c", "print('hello')"])

    assert text == "hello\n"
    assert "hello" in progress.log_path.read_text()


def test_failed_command_tells_its_code_its_last_lines_and_the_log(progress: Progress) -> None:
    with pytest.raises(CommandFailed) as caught:
        progress.run([sys.executable, "-c", "print('why'); raise SystemExit(3)"])

    assert caught.value.code == 3
    assert "why" in str(caught.value)
    assert str(progress.log_path) in str(caught.value)


def test_terminal_shows_every_step_and_its_end(tmp_path: Path, output: io.StringIO) -> None:
    console = Console(file=output, force_terminal=True, width=80)
    progress = Progress(tmp_path / "log", console, environ={})
    with progress.step("Outer"), progress.step("Inner"):
        progress.note("looking")

    assert "Outer" in output.getvalue()
    assert "✓" in output.getvalue()
