from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.podset.naming import parse_pod_name, parse_slot, pod_name

_NAMES = st.from_regex(r"[a-z]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)


@given(name=_NAMES, slot=st.integers(0, 10**9 - 1))
def test_name_of_a_slot_is_parsed_back(name: str, slot: int) -> None:
    assert parse_slot(name, pod_name(name, slot)) == slot


@pytest.mark.parametrize(
    "name",
    [
        "web-pod-",
        "web-pod-01",
        "web-pod--1",
        "web-pod-x",
        "web-pod-1x",
        "web-1",
        "-pod-1",
        "web-pod-²",
    ],
)
def test_name_that_no_set_gives_has_no_slot(name: str) -> None:
    assert parse_pod_name(name) == ("", None)


def test_name_of_another_set_has_no_slot_of_this_one() -> None:
    assert parse_slot("web", "web-pod-1-pod-2") is None
    assert parse_slot("web-pod-1", "web-pod-1-pod-2") == 2
