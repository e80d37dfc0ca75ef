"""The page of the public API has every name with its signature, and few names."""

from __future__ import annotations

import importlib

import pytest

from tools.generate.docs.library import PAGE, PUBLIC, render_library

_TEXT = render_library()[PAGE]


def test_public_names_are_few() -> None:
    assert sum(len(names.split()) for names in PUBLIC.values()) <= 150


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in PUBLIC for name in PUBLIC[module].split()]
)
def test_public_name_can_be_imported_and_is_described(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(f"libs.common.{module}"), name)
    assert f"**`{name}" in _TEXT or f"**`await {name}" in _TEXT


@pytest.mark.parametrize(
    "line",
    [
        "**`build_name(*parts: str, limit: int=DNS_LABEL_LIMIT) -> str`**",
        "**`PrinterColumn(name: str, type: Literal[",
        "* `await .execute(",
        "* raises `NotFound`",
        "* `transform`: ",
    ],
)
def test_page_has_arguments_methods_errors_and_options(line: str) -> None:
    assert line in _TEXT, [each for each in _TEXT.splitlines() if line[:8] in each][:3]
