"""Go versions are numbers, not text."""

from __future__ import annotations

import pytest

from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import parse_go_version
from tools.cluster.versions import GO


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        ("go version go1.26.8 linux/amd64", True),
        ("go version go1.26 linux/amd64", True),
        ("go version go1.100.1 linux/amd64", True),
        ("go version go1.27rc1 linux/amd64", True),
        ("go version go1.25.9 linux/amd64", False),
        ("go version go1.9 linux/amd64", False),
    ],
)
def test_version_is_compared_by_its_numbers(text: str, enough: bool) -> None:
    assert (parse_go_version(text) >= GO) is enough


def test_text_without_version_is_an_error() -> None:
    with pytest.raises(ToolError, match="contains no version"):
        parse_go_version("go: command not found")
