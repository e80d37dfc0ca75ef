"""Fields of a schema, and how to put a value into one of them. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st

from libs.common.kinds import Manifest

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
ITEM: Final = "[]"
"""Step of a path into the items of a list."""
ENTRY: Final = "{}"
"""Step of a path into the values of a map."""
_KEY: Final = "key"


class _Absent:
    """A marker for an omitted field."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Value that leaves a field out."""


@dataclass(frozen=True)
class Field:
    """One location in a schema.

    Attributes:
        path: Steps from the object, such as `("spec", "replicas")`.
        schema: Schema of the value.
        required: Whether its parent needs it.
    """

    path: tuple[str, ...]
    schema: Mapping[str, Any]
    required: bool

    @property
    def name(self) -> str:
        """Path as people write it: `spec.rules[].port`."""
        text = ".".join(self.path)
        return text.replace(f".{ITEM}", ITEM).replace(f".{ENTRY}", ENTRY)


def walk_fields(
    schema: Mapping[str, Any], path: tuple[str, ...] = ("spec",), *, required: bool = True
) -> Iterator[Field]:
    """Yield a place and all places below it, parents first."""
    yield Field(path, schema, required)
    needed = schema.get("required") or ()
    for name, child in (schema.get("properties") or {}).items():
        yield from walk_fields(child, (*path, name), required=name in needed)
    if isinstance(schema.get("items"), Mapping):
        yield from walk_fields(schema["items"], (*path, ITEM))
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from walk_fields(schema["additionalProperties"], (*path, ENTRY))


def put(base: Manifest, root: Mapping[str, Any], field: Field, value: Any) -> Manifest:
    """Return a copy of an object in which a field has a value; what is missing above it is made.

    Args:
        base: A valid object.
        root: Schema of its `spec`.
        field: Which field.
        value: What to put there; `ABSENT` leaves it out.
    """
    changed = copy.deepcopy(base)
    place: Any = changed
    schema: Mapping[str, Any] = {"properties": {"spec": root}}
    for step, following in zip(field.path[:-1], field.path[1:], strict=True):
        schema = _child_of(schema, step)
        place = _enter(place, step, schema, following)
    _set(place, field.path[-1], value)
    return changed


def build_sample(schema: Mapping[str, Any]) -> Any:
    """Build a small value that fits a schema, with what it requires and nothing else."""
    if "default" in schema:
        return copy.deepcopy(schema["default"])
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get(INT_OR_STRING):
        return 1
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: build_sample(properties[name]) for name in schema.get("required") or ()}
    if kind == "array":
        return [build_sample(schema["items"])] * int(schema.get("minItems") or 0)
    if kind == "integer":
        return int(schema.get("minimum", 1))
    if kind == "boolean":
        return True
    return find_fit(schema.get("pattern", ""), max(1, int(schema.get("minLength") or 0)))


@cache
def find_fit(pattern: str, length: int = 1) -> str:
    """Find a simple text that fits a pattern and is not shorter than some length."""
    if re.search(pattern, "a" * length):
        return "a" * length
    chosen = settings(
        database=None,
        derandomize=True,
        phases=[Phase.generate],  # The first to be tried is simple enough.
        suppress_health_check=list(HealthCheck),
    )
    texts = st.from_regex(pattern, fullmatch=True)
    return find(texts, lambda text: len(text) >= length, settings=chosen)


def _child_of(schema: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    if step == ITEM:
        found: Mapping[str, Any] = schema["items"]
    elif step == ENTRY:
        found = schema["additionalProperties"]
    else:
        found = schema["properties"][step]
    return found


def _enter(place: Any, step: str, schema: Mapping[str, Any], following: str) -> Any:
    """Go one step down, and make what is not there."""
    if step == ITEM:
        if not place:
            place.append(build_sample(schema))
        return place[0]
    if step == ENTRY:
        step = next(iter(place), _KEY)
    if not isinstance(place.get(step), dict | list):
        place[step] = [] if following == ITEM else build_sample(schema)
    return place[step]


def _set(place: Any, step: str, value: Any) -> None:
    if step == ITEM:
        place[:] = [] if value is ABSENT else [value, *place[1:]]
    elif value is ABSENT:
        place.pop(next(iter(place), "") if step == ENTRY else step, None)
    else:
        place[next(iter(place), _KEY) if step == ENTRY else step] = value
