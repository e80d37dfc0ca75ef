"""The part of JSONPath that printer columns use: fields, indexes, `[*]` and filters on equality."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

type Find = Callable[[Any], list[Any]]
"""Returns the values at a path of an object."""
type _Step = Callable[[Any], Iterable[Any]]

_STEP: Final = re.compile(
    r"""\.?(?P<field>(?:\\.|[^.\[\]\\])+)
    | \[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
    | \[(?P<index>-?\d+)\]
    | (?P<all>\.?\[\*\]|\.\*)
    | \[\?\(@\.(?P<path>.+?)\s*==\s*(?P<mark>['"])(?P<value>.*?)(?P=mark)\s*\)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def parse_path(path: str) -> Find:
    """Return the function that finds the values at a path; unknown syntax finds none."""
    steps: list[_Step] = []
    rest = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    while rest:
        found = _STEP.match(rest)
        if found is None:
            return lambda _: []
        steps.append(_build_step(found))
        rest = rest[found.end() :]

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [result for each in values for result in step(each)]
        return values

    return find


def _build_step(found: re.Match[str]) -> _Step:
    if found["path"]:
        within, wanted = parse_path(found["path"]), found["value"]
        return lambda value: (each for each in _items(value) if wanted in within(each))
    if found["all"]:
        return _items
    if found["index"]:
        index = int(found["index"])
        return lambda value: list(_items(value))[index:][:1]
    name = found["quoted"] or re.sub(r"\\(.)", r"\1", found["field"] or "")
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
