"""Names: within the limits, the same each time, and never the same for two."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from libs.common.naming import (
    DNS_LABEL_LIMIT,
    DNS_SUBDOMAIN_LIMIT,
    build_name,
    label_value,
    short_hash,
)

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LABEL_VALUE = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABELS = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?\Z")
OBJECT_NAMES = st.lists(LABELS, min_size=1, max_size=6).map(".".join)
LIMITS = st.sampled_from([20, DNS_LABEL_LIMIT, DNS_SUBDOMAIN_LIMIT])


def test_short_name_is_the_parts() -> None:
    assert build_name("web", "pod", "0") == "web-pod-0"
    assert build_name("a" * 63) == "a" * 63


@given(OBJECT_NAMES, st.integers(0, 999), LIMITS)
def test_name_is_valid_and_within_its_limit(name: str, number: int, limit: int) -> None:
    assume(len(name) <= DNS_SUBDOMAIN_LIMIT)
    built = build_name(name, str(number), limit=limit)

    assert len(built) <= limit
    assert re.fullmatch(SUBDOMAIN, built)
    assert built == build_name(name, str(number), limit=limit)


@given(OBJECT_NAMES, OBJECT_NAMES, LIMITS)
def test_names_that_are_cut_stay_apart(first: str, second: str, limit: int) -> None:
    prefix = "x" * limit
    assume(first != second)

    assert build_name(prefix, first, limit=limit) != build_name(prefix, second, limit=limit)


@pytest.mark.parametrize("cut", ["-", ".", "-.-"])
def test_cut_does_not_leave_a_separator_behind(cut: str) -> None:
    name = "a" * (DNS_LABEL_LIMIT - 9 - len(cut)) + cut + "b" * 20

    assert re.fullmatch(SUBDOMAIN, build_name(name))


@given(OBJECT_NAMES)
def test_label_value_of_any_object_name_is_valid(name: str) -> None:
    value = label_value(name)

    assert len(value) <= DNS_LABEL_LIMIT
    assert re.fullmatch(LABEL_VALUE, value)


def test_limit_without_room_for_the_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        build_name("abcdefghijkl", limit=8)


def test_hash_is_the_same_everywhere_and_keeps_parts_apart() -> None:
    assert short_hash("a") == "ca978112"
    assert short_hash("a", "bc") != short_hash("ab", "c")
    assert len(short_hash("a", length=12)) == 12
