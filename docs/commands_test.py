"""Commands in pages are accepted by the command lines: ./dev and kubectl slipway."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import typer.main

from docs.docs_test import PAGES, ROOT, name_of
from kubectl_slipway.cli import parse
from tools.dev.app import app
from tools.gate.steps import build_steps

SOURCES: Final = [
    *(page for page in PAGES if page.name != "kubectl-slipway.md" or page.parent.name == "howto"),
    ROOT / "kubectl_slipway" / "README.md",
    *sorted((ROOT / "helm").glob("*/templates/NOTES.txt")),
    *sorted((ROOT / "helm").glob("*/files/alerts.yaml")),
]
_PASSED_ON: Final = {
    *("new", "test", "generate", "docs", "release"),
    *("bench", "sweep", "kubevirt-sim", "guest-image"),
}
"""Commands that pass their words to another parser; `docs/claims_test.py` checks their options."""
_END: Final = re.compile(r"[`|;&>#)\"]|\s\\$|: |\.$|,$")
_MADE_UP: Final = re.compile(r"[<\[{]|\.\.\.|greeter|backups|KIND|NAME|ID\b")


def find_commands(text: str, program: str) -> Iterator[list[str]]:
    """Yield the words after the program, for commands in code that name no placeholder."""
    for line in text.splitlines():
        for found in re.finditer(rf"(?:`|^\s*(?:\$ )?|\$\()({re.escape(program)} [^\n]+)", line):
            command = _END.split(found[1], maxsplit=1)[0].strip()
            if not _MADE_UP.search(command):
                yield shlex.split(command)[len(program.split()) :]


def find_examples(program: str) -> list[tuple[Path, list[str]]]:
    return [(page, words) for page in SOURCES for words in find_commands(page.read_text(), program)]


def render_id(value: Path | list[str]) -> str:
    return name_of(value) if isinstance(value, Path) else shlex.join(value)


@pytest.mark.parametrize(("page", "words"), find_examples("./dev"), ids=render_id)
def test_command_of_dev_is_accepted(page: Path, words: list[str]) -> None:
    """Name, options and their values; nothing runs."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # A group.
    if words and not words[0].startswith("-"):
        command = commands[words[0]]
        if words[1:] and words[0] not in _PASSED_ON and "--help" not in words:
            # A directory of the reader must exist, so this checkout stands in for it.
            paths = [str(ROOT) if word.startswith("~") else word for word in words[1:]]
            command.make_context(words[0], paths)


@pytest.mark.parametrize(("page", "words"), find_examples("kubectl slipway"), ids=render_id)
def test_command_of_the_plugin_is_accepted(page: Path, words: list[str]) -> None:
    """The parser ends the process if a name, an option or a value is wrong."""
    if "--version" in words:
        with pytest.raises(SystemExit, match="0"):
            parse(words)
    else:
        assert parse(words).module


def test_steps_of_the_gate_that_pages_name_exist() -> None:
    known = {step.name for step in build_steps("python")}
    for page, words in find_examples("./dev"):
        if words[:1] == ["test"] and "--only" in words:
            assert set(words[words.index("--only") + 1 :]) <= known, name_of(page)


def test_commands_are_found() -> None:
    page = (
        "Run `./dev up --workers 2`, then:\n\n```sh\n$ ./dev status   # all\n./dev new <id>\n```\n"
    )

    assert list(find_commands(page, "./dev")) == [["up", "--workers", "2"], ["status"]]
    assert len(find_examples("./dev")) > 60
    assert len(find_examples("kubectl slipway")) > 10
