"""Tests of the addresses to listen on."""

import pytest

from libs.common.settings.addresses import BindAddress, parse_bind_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", BindAddress("", 8080)),
        ("127.0.0.1:0", BindAddress("127.0.0.1", 0)),
        ("localhost:80", BindAddress("localhost", 80)),
        ("[::1]:8080", BindAddress("::1", 8080)),
        ("0", None),
        ("", None),
    ],
)
def test_address_is_parsed(text: str, expected: BindAddress | None) -> None:
    assert parse_bind_address(text) == expected


@pytest.mark.parametrize("text", ["8080", "localhost", ":http", ":65536", "::1:8080", ":-1", ":"])
def test_bad_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'0' to disable"):
        parse_bind_address(text)
