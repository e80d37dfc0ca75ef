"""Text with its place, and what the rules find in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tools.prose.rules import RULES, Rule

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")


@dataclass(frozen=True)
class Passage:
    """A piece of text, usually a line.

    Attributes:
        file: The path below the root of the repository.
        line: The number of the line, or 0 if the text has none.
        text: The text without code.
    """

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Finding:
    """A phrase to rewrite."""

    passage: Passage
    rule: Rule
    phrase: str

    def __str__(self) -> str:
        where = (
            f"{self.passage.file}:{self.passage.line}" if self.passage.line else self.passage.file
        )
        return f"{where}: {self.phrase!r}: {self.rule.instead}"


@dataclass
class Count:
    """The words of a corpus and the findings in it."""

    words: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Findings per 1,000 words."""
        return 1000 * len(self.findings) / self.words if self.words else 0.0


def check(passages: Iterable[Passage]) -> Count:
    """Count words and findings."""
    count = Count()
    before: Passage | None = None
    for passage in passages:
        count.words += len(_WORD.findall(passage.text))
        for rule in RULES:
            count.findings += [
                Finding(passage, rule, match.group()) for match in rule.find(passage.text)
            ]
        if before is not None and _continues(before, passage):
            count.findings += _check_break(before, passage)
        before = passage
    return count


def _continues(before: Passage, passage: Passage) -> bool:
    return (
        before.file == passage.file
        and passage.line == before.line + 1 > 1
        and bool(before.text.strip() and passage.text.strip())
    )


def _check_break(before: Passage, passage: Passage) -> list[Finding]:
    """Return the phrases that a line break divides."""
    head, tail = before.text.rstrip(), passage.text.lstrip()
    return [
        Finding(before, rule, match.group())
        for rule in RULES
        for match in rule.find(f"{head} {tail}")
        if match.start() < len(head) and match.end() > len(head) + 1
    ]
