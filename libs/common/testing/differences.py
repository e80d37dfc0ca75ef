"""Differences: where two states of the cluster differ, in words. Pure.

The test kit describes them itself, because pytest explains the asserts of tests but not the asserts
of a library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_LIMIT: Final = 20
"""Most lines that are shown; what runs through all objects is seen in the first of them."""
_WIDTH: Final = 120


def describe_difference(wanted: Any, found: Any, path: str = "") -> list[str]:
    """List where two normalized values differ, in words."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return [
            line
            for name in sorted({*wanted, *found})
            for line in _compare_member(wanted, found, name, path)
        ]
    if _are_lists(wanted, found) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [
            line
            for number, (first, second) in pairs
            for line in describe_difference(first, second, f"{path}[{number}]")
        ]
    return [] if wanted == found else [f"{path}: {_short(wanted)} became {_short(found)}"]


def render_differences(wanted: Any, found: Any) -> str:
    """Render where two values differ, a line each, for the message of a test that fails."""
    lines = describe_difference(wanted, found)
    if len(lines) > _LIMIT:
        lines[_LIMIT:] = [f"and {len(lines) - _LIMIT} more"]
    return "\n".join(f"  {line}" for line in lines)


def _are_lists(*values: Any) -> bool:
    return all(isinstance(value, list) for value in values)


def _compare_member(
    wanted: Mapping[str, Any], found: Mapping[str, Any], name: str, path: str
) -> list[str]:
    place = f"{path}.{name}" if path else name
    if name not in found:
        return [f"{place} is missing"]
    if name not in wanted:
        return [f"{place} is there, {_short(found[name])}"]
    return describe_difference(wanted[name], found[name], place)


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
