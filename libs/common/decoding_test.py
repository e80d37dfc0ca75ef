"""Objects that are nested deeply do not hide other objects."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from libs.common.decoding import LEVELS, parse_json


def nest(levels: int) -> bytes:
    return b'{"k":' * levels + b"1" + b"}" * levels


def count_levels(value: Any) -> int:
    levels = 0
    while isinstance(value, dict):
        value, levels = value.get("k"), levels + 1
    return levels


@pytest.mark.parametrize("levels", [LEVELS + 1, 254, 255, 1_023, 1_024, 2_500, 9_900])
def test_list_with_a_deep_object_has_its_other_objects(levels: int) -> None:
    parsed = parse_json(b'{"items":[{"name":"a"},' + nest(levels) + b',{"name":"b"}]}', outer=2)
    first, deep, last = parsed["items"]
    assert (first, last) == ({"name": "a"}, {"name": "b"})
    assert count_levels(deep) == LEVELS
    assert parse_json(nest(levels)) == deep
    assert parse_json(b'{"object":' + nest(levels) + b"}", outer=1) == {"object": deep}
    orjson.dumps({"spec": {"template": copy.deepcopy(deep)}})


def test_what_is_not_deep_is_whole() -> None:
    assert count_levels(parse_json(nest(LEVELS))) == LEVELS


@pytest.mark.parametrize("text", [b"", b"<html>", b'{"a":', nest(100_000), b"[" * 100_000])
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_half_of_a_surrogate_pair_can_be_encoded_again() -> None:
    """The API server of a guest may send one; the status of its cluster would be lost."""
    parsed = parse_json(rb'{"message": "a\ud800b", "\udfff": "\ud83d\ude00"}')
    assert parsed == {"message": "a?b", "?": "😀"}
    assert orjson.loads(orjson.dumps(parsed)) == parsed
