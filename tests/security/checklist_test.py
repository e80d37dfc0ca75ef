"""The checklist names tests that exist, and the page says what it says."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.security.checklist import ROWS, Row
from tests.security.code import ROOT
from tests.security.limits import LIMITS, Limit
from tests.security.page import (
    ATTACKS_PAGE,
    LIMITS_PAGE,
    PAGE,
    render_attacks,
    render_limits,
    render_page,
)


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests of a file."""
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_row_names_tests_that_exist(row: Row) -> None:
    for test in (*row.checks, *row.negative):
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert name in names_in(file), test


def test_every_row_is_checked_both_ways_or_says_why_not() -> None:
    assert [row.number for row in ROWS] == list(range(1, 34))
    for row in ROWS:
        assert bool(row.checks) == bool(row.negative), f"row {row.number} proves nothing"
        assert row.checks or row.note, f"row {row.number} says nothing"


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.what[:40])
def test_limit_has_its_value_in_the_code_and_a_test(limit: Limit) -> None:
    file, _, name = limit.test.partition("::")
    assert name in names_in(file), limit.test
    if limit.constant:
        file, _, name = limit.constant.partition("::")
        found = re.search(
            rf"\b{name}\b(?:: Final)? = (.+?);?$", (ROOT / file).read_text(), re.MULTILINE
        )
        assert found is not None, limit.constant
        assert eval(found[1], {"__builtins__": {}}) == int(limit.value)  # noqa: S307


def test_pages_are_those_of_the_checklist_and_the_limits() -> None:
    assert LIMITS_PAGE.read_text() == render_limits(), "write it: python -m tests.security.page"
    assert ATTACKS_PAGE.read_text() == render_attacks(), "python -m tests.security.page"
    assert PAGE.read_text() == render_page(), "write it anew: python -m tests.security.page"
