"""Tests of the rules on immutable fields."""

from __future__ import annotations

import pytest

from libs.common.crd.immutable import build_immutable_rules, escape_property


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("size", "size"),
        ("namespace", "__namespace__"),
        ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
        ("a__b", "a__underscores__b"),
    ],
)
def test_property_is_escaped_as_the_server_does(name: str, escaped: str) -> None:
    assert escape_property(name) == escaped


def test_field_that_is_always_there_needs_one_rule() -> None:
    own, above = build_immutable_rules("size", "always", always_present=True)

    assert own == {"rule": "self == oldSelf", "message": "size is immutable"}
    assert above == []


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        ("always", "has(self.__namespace__) == has(oldSelf.__namespace__)"),
        ("once", "!has(oldSelf.__namespace__) || has(self.__namespace__)"),
    ],
)
def test_optional_field_needs_a_rule_on_the_object_above(mode: str, rule: str) -> None:
    _, above = build_immutable_rules("namespace", mode, always_present=False)

    assert [(one["rule"], one["fieldPath"]) for one in above] == [(rule, ".namespace")]
