"""Decode the JSON of an API server, however deeply somebody has nested it.

A kind with an embedded template accepts objects with thousands of levels (a kube-apiserver decodes
10,000). A parser that refused them would refuse the whole list, and everybody's objects with it.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

LEVELS: Final = 200
"""Levels that remain of an object. Far more than an API has, and few enough that Python's stack
can copy it and that a child with it as its template can be encoded."""
_ENCODED: Final = 254
"""Levels that orjson encodes."""


def parse_json(body: bytes, outer: int = 0) -> Any:
    """Parse JSON, without what is nested deeper than `LEVELS` in an object.

    Args:
        body: The JSON.
        outer: Levels around the object: 2 for a list, 1 for a line of a watch. However an object
            arrives, the same of it remains.

    Raises:
        ValueError: It is no JSON, or has more than about 10,000 levels.
    """
    try:
        return limit_depth(orjson.loads(body), outer)
    except orjson.JSONDecodeError:
        try:
            # orjson reads 1,024 levels, and no lone surrogates, which UTF-8 cannot encode either.
            found = json.loads(body)  # security: fails after 10,000 levels
            text = json.dumps(found, ensure_ascii=False).encode(errors="replace")
            return limit_depth(json.loads(text), outer)  # security: as above
        except RecursionError as err:
            raise ValueError("it has too many levels") from err


def limit_depth[T](value: T, outer: int = 0) -> T:
    """Replace what is nested deeper than `LEVELS` by null, in the value itself; return it."""
    levels = LEVELS + outer
    wrapped: Any = value
    for _ in range(_ENCODED - levels):
        wrapped = [wrapped]
    try:
        # Encoding is the fastest way to learn that nothing is nested deeply.
        orjson.dumps(wrapped)
    except TypeError:
        _cut(value, levels)
    return value


def _cut(value: Any, levels: int) -> None:
    rest = [(value, 1)]
    while rest:
        holder, level = rest.pop()
        held = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, child in list(held):
            if not isinstance(child, dict | list):
                continue
            if level < levels:
                rest.append((child, level + 1))
            else:
                holder[key] = None
