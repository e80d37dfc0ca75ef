"""Tests of the rules on immutable fields."""

from __future__ import annotations

from typing import Annotated

import pytest

from libs.common.crd.errors import SchemaError
from libs.common.crd.immutable import build_immutable_rules, escape_property
from libs.common.crd.markers import Immutable, ListMap
from libs.common.crd.model import KubernetesModel
from libs.common.crd.schema import build_schema
from libs.common.crd.types import DnsLabel


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


class Item(KubernetesModel):
    """Item has a field that keeps its value."""

    name: DnsLabel
    """name tells items apart."""
    size: Annotated[int, Immutable()] = 1
    """size cannot change."""


class Keyed(KubernetesModel):
    """Keyed has items that the server can tell apart."""

    items: Annotated[list[Item], ListMap("name")]
    """items are a list-map."""


class Loose(KubernetesModel):
    """Loose has items of which nobody knows what they were before."""

    items: list[Item]
    """items are replaced as a whole."""


def test_items_with_immutable_fields_must_be_a_list_map() -> None:
    build_schema(Keyed)
    with pytest.raises(SchemaError, match="items: a rule on its items reads oldSelf"):
        build_schema(Loose)
