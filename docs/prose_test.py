"""Text is plain English: pages and strings contain few of the phrases that the Vale rules name."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
LIMITS: Final = {"**/*.md": 0.3, "**/*.yaml": 0.3, "**/*.py": 0.8}
"""Findings per 1,000 words that each kind of file may have; only lower them."""
_CODE: Final = re.compile(r"^( *)(`{3,}).*?^\1\2|`[^`\n]*`|\]\([^)\s]*\)", re.MULTILINE | re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]+")


@functools.cache
def load_rules() -> dict[str, re.Pattern[str]]:
    """Return the pattern of each message of the Vale rules."""
    rules = [
        yaml.safe_load(path.read_text()) for path in (ROOT / ".vale/styles/Slipway").glob("*.yml")
    ]
    return {rule["message"]: re.compile("|".join(rule["tokens"]), re.IGNORECASE) for rule in rules}


def list_files(pattern: str) -> list[Path]:
    """Return the tracked files of a kind, without generated reference pages."""
    command = ["git", "ls-files", "--", f":(glob){pattern}", ":!docs/reference/*/*"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).is_file()]


def read_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file for people: pages, strings in code, comments and descriptions."""
    text = path.read_text()
    if path.suffix == ".md":
        yield text
    elif path.suffix == ".yaml":
        yield from re.findall(r"(?:#|description:) (.*(?:\n +[a-z].*)*)", text)
    else:
        yield from re.findall(r"(?:^|\s)# (.+)$", text, re.MULTILINE)
        for node in ast.walk(ast.parse(text)):
            value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and len(_WORD.findall(value)) >= 3:
                yield value


def find_phrases(text: str) -> list[str]:
    """Return the phrases of a text that the rules name, with what to write instead."""
    plain = " ".join(_CODE.sub(" ", text).split())
    return [
        message.replace("%s", match.group())
        for message, pattern in load_rules().items()
        for match in pattern.finditer(plain)
    ]


@pytest.mark.parametrize("pattern", LIMITS)
def test_files_stay_below_the_limit(pattern: str) -> None:
    words, found = 0, []
    for path in list_files(pattern):
        for text in read_texts(path):
            words += len(_WORD.findall(text))
            found += [f"{path.relative_to(ROOT)}: {phrase}" for phrase in find_phrases(text)]

    assert words > 1000, f"no text is read in {pattern}"
    assert len(found) / words * 1000 <= LIMITS[pattern], "\n".join(found[-40:])


def test_rules_find_phrases_and_leave_plain_text_alone() -> None:
    assert len(find_phrases("the cause is mended anew, also after one pass")) == 4
    assert find_phrases("At a time, 20 pods start. Run `mend anew`.") == []
