"""Pages: the checklist and the limits, for people. `python -m tests.security.page` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from libs.common.project.text import replace_blocks
from tests.attacks.table import render_attempts
from tests.security.checklist import ROWS
from tests.security.code import ROOT
from tests.security.limits import LIMITS, Limit

PAGE: Final = ROOT / "docs" / "reference" / "security-checklist.md"
_HEAD: Final = """# Security checklist

This page lists each control with the tests that verify it, and with the tests that prove that
these tests can fail. A test checks that all of them exist and that this page is up to date;
`python -m tests.security.page` writes it. [Security](../explanation/security.md) explains how
operators are protected.

| # | control | verified by | can fail, proved by | not checked |
| --- | --- | --- | --- | --- |
"""


ATTACKS_PAGE: Final = ROOT / "docs" / "explanation" / "security.md"
LIMITS_PAGE: Final = ROOT / "docs" / "reference" / "limits.md"
_LIMITS_HEAD: Final = """# Limits on what tenants send

An operator serves all tenants with one process, so nobody may fill its memory or its time. This
page lists what a tenant writes, answers or serves, and where that ends. The schemas of the CRDs
limit each string and list of a spec in addition. A test sends more than each limit, and another
one compares this page with the code; `python -m tests.security.page` writes it.

Not limited here is the number of custom objects, which the cache of their operator holds whole:
60 PodSets with annotations of 250 kB, the most that the API allows, took 44 MiB. A
[ResourceQuota](../howto/tenancy.md#limit-what-a-team-can-use) of each namespace limits them.

| what a tenant sends | limit | beyond it | tested by |
| --- | --- | --- | --- |
"""


def render_limits() -> str:
    """Render the page of the limits."""
    rows = [
        f"| {each.what} | {_limit(each)} | {each.beyond} | {_list([each.test])} |"
        for each in LIMITS
    ]
    return _LIMITS_HEAD + "\n".join(rows) + "\n"


def _limit(limit: Limit) -> str:
    if not limit.value:
        return "none"
    number = f"{int(limit.value):,}"
    return f"{number} {limit.unit}".strip()


def render_page() -> str:
    """Render the checklist."""
    rows = [
        f"| {row.number} | {row.control} | {_list(row.checks)} | {_list(row.negative)} "
        f"| {row.note} |"
        for row in ROWS
    ]
    return _HEAD + "\n".join(rows) + "\n"


def render_attacks() -> str:
    """Render the table of attacks into the page about security."""
    text = ATTACKS_PAGE.read_text()
    return replace_blocks(text, {"attacks": render_attempts()}, path=str(ATTACKS_PAGE))


def _list(tests: Sequence[str]) -> str:
    return "<br>".join(
        f"`{file}`: {name}" for file, _, name in (each.partition("::") for each in tests)
    )


if __name__ == "__main__":
    PAGE.write_text(render_page())
    LIMITS_PAGE.write_text(render_limits())
    ATTACKS_PAGE.write_text(render_attacks())
