"""Tests of the types of fields, as pydantic checks them; their schemas are in schema_test.py."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from libs.common.crd.types import LabelMap


@pytest.mark.parametrize("key", ["app", "A_b.c", "example.com/team", "a" * 63, "b" * 253 + "/a"])
def test_key_that_the_api_server_takes_for_a_label_is_one(key: str) -> None:
    assert TypeAdapter(LabelMap).validate_python({key: "shop"}) == {key: "shop"}


@pytest.mark.parametrize(
    "key",
    [
        "",
        "bad key!",
        "-app",
        "a" * 64,
        "a/b/c",
        "/team",
        "Example.com/team",
        "a\n",
        "b" * 254 + "/a",
    ],
)
def test_key_that_no_label_can_have_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match="must be a qualified name such as app or") as caught:
        TypeAdapter(LabelMap).validate_python({"app": "shop", key: "shop"})

    assert repr(key) in str(caught.value)
