"""Text is plain English: each corpus stays below its limit, and the rules find what they should."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tools.prose.corpora import CORPORA, strip_markdown
from tools.prose.limits import GOAL, load_limits, lower
from tools.prose.names import find_vague_names, is_vague
from tools.prose.rules import RULES
from tools.prose.text import Passage, check
from tools.prose.vale import render_vale

ROOT: Final = Path(__file__).resolve().parents[2]
DIALECT: Final = {
    "Run the command again once the cause is mended.": {"Fix"},
    "size is that of the disk": {"RepeatNoun"},
    "one release in a cluster is to make them": {"Instruction"},
    "the page tells what there is": {"Reports", "Name"},
    "a claim is made anew, and for good": {"Again", "For"},
    "costs no write, also after a restart": {"SentenceAlso"},
    "closed but for what firewalls allow": {"Except"},
    "in a quarter of an hour": {"Number"},
}
PLAIN: Final = (
    "Fix the cause and run the command again.",
    "size is the size of the root disk. Defaults to the disk size of the InstanceSize.",
    "All at once, 20 pods start; the drain is 30 s long and the tests pass.",
    "If the API server does not respond, the operator retries after 5 s.",
)


@pytest.mark.parametrize("name", CORPORA)
def test_corpus_stays_below_its_limit(name: str) -> None:
    count = check(CORPORA[name](ROOT))
    worst = "\n".join(str(each) for each in count.findings[-20:])
    assert count.words > 1000, f"the corpus {name} is not read"
    assert count.rate <= load_limits()[name], f"./dev prose {name} --list; for example:\n{worst}"


@pytest.mark.parametrize(("text", "rules"), DIALECT.items())
def test_phrase_is_found(text: str, rules: set[str]) -> None:
    found = {each.rule.name for each in check([Passage("page.md", 1, text)]).findings}
    assert rules <= found


@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentence_has_no_finding(text: str) -> None:
    assert check([Passage("page.md", 1, text)]).findings == []


def test_phrase_that_a_line_break_divides_is_found_once() -> None:
    lines = [Passage("page.md", 1, "the cause is"), Passage("page.md", 2, "told to anyone")]
    apart = [lines[0], Passage("page.md", 3, "told to anyone")]

    assert [each.phrase for each in check(lines).findings] == ["is told"]
    assert check(apart).findings == []


def test_code_is_not_prose() -> None:
    page = "Run `mend anew`.\n```sh\nmend --whoever\n```\nsee [it](anew.md)\n"
    assert check([Passage("page.md", 1, strip_markdown(page))]).findings == []
    assert strip_markdown(page).count("\n") == page.count("\n")


def test_names_in_code_are_standard_terms() -> None:
    assert find_vague_names(ROOT) == []


@pytest.mark.parametrize("name", ["Desk", "_find_trouble", "worldClient", "lookout"])
def test_vague_name_is_found(name: str) -> None:
    assert is_vague(name)


@pytest.mark.parametrize("name", ["test_nobody_is_told", "Reconciler", "_fetch", "settled"])
def test_standard_name_is_not_found(name: str) -> None:
    assert not is_vague(name)


def test_limits_only_go_down() -> None:
    assert lower({"docs": 2.0}, {"docs": 12.0}) == {"docs": 2.0}
    assert lower({"docs": 2.0}, {"docs": 1.21}) == {"docs": 1.6}
    assert lower({}, {"new": 12.0}) == {"new": GOAL}
    assert all(limit <= GOAL for limit in load_limits().values())


def test_rules_of_vale_are_up_to_date() -> None:
    files = render_vale()
    assert len(files) == len(RULES) + 1
    for path, text in files.items():
        assert (ROOT / path).read_text() == text, "run ./dev prose --write-vale"
    written = {path.relative_to(ROOT) for path in (ROOT / ".vale").rglob("*.yml")}
    assert written == set(files) - {Path(".vale.ini")}
