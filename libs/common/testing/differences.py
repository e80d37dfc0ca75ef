"""Differences: where two states of the cluster differ, in words. Pure.

The test kit describes them itself, because pytest explains the asserts of tests but not the asserts
of a library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_LIMIT: Final = 20
"""Most lines that are shown; what runs through all objects is seen in the first of them."""
_WIDTH: Final = 120
ABSENT: Final = "(absent)"
"""What stands for a value that does not exist."""


def find_differences(wanted: Any, found: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, wanted and found value of each place in which two values differ."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name in sorted({*wanted, *found}):
            place = f"{path}.{name}" if path else name
            yield from find_differences(wanted.get(name, ABSENT), found.get(name, ABSENT), place)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, pair in enumerate(zip(wanted, found, strict=True)):
            yield from find_differences(*pair, f"{path}[{number}]")
    elif wanted != found:
        yield path, wanted, found


def describe_difference(wanted: Any, found: Any) -> list[str]:
    """List where two normalized values differ, in words."""
    return [_describe(*each) for each in find_differences(wanted, found)]


def render_differences(wanted: Any, found: Any) -> str:
    """Render where two values differ, a line each, for the message of a test that fails."""
    lines = describe_difference(wanted, found)
    if len(lines) > _LIMIT:
        lines[_LIMIT:] = [f"and {len(lines) - _LIMIT} more"]
    return "\n".join(f"  {line}" for line in lines)


def _describe(place: str, wanted: Any, found: Any) -> str:
    if found is ABSENT:
        return f"{place} is missing"
    if wanted is ABSENT:
        return f"{place} is there, {_short(found)}"
    return f"{place}: {_short(wanted)} became {_short(found)}"


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
