"""Differences between two JSON values, which can be applied to a third one later. Pure.

A conversion records what an older version cannot express: where converting back returns another
value than the original. A value that somebody has changed since then wins over the recorded one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from libs.common.kinds import Manifest


class _Absent:
    """A marker for an absent field."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __deepcopy__(self, _: object) -> Self:
        return self


ABSENT: Final = _Absent()
"""Value of a field that does not exist."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs.

    Attributes:
        path: Names of the fields that lead to it. Lists are compared as a whole.
        before: Its value in the first of two values.
        after: Its value in the second.
    """

    path: tuple[str, ...]
    before: Any
    after: Any

    def to_json(self) -> Manifest:
        """Return the difference as a JSON value; absent values are left out."""
        values = {"before": self.before, "after": self.after}
        kept = {name: value for name, value in values.items() if value is not ABSENT}
        return {"path": list(self.path), **kept}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read a difference.

        Raises:
            ValueError: The value is not a difference.
        """
        path = value.get("path")
        if not isinstance(path, list) or not path or not all(isinstance(p, str) for p in path):
            raise ValueError("path must be a list of texts")
        return cls(tuple(path), value.get("before", ABSENT), value.get("after", ABSENT))


def find_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[Difference]:
    """Yield the fields in which two JSON objects differ, sorted by path."""
    for name in sorted({*before, *after}):
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from find_differences(old, new, (*path, name))
        elif not _is_same(old, new):
            yield Difference((*path, name), old, new)


def apply_differences(target: Manifest, differences: Iterable[Difference]) -> Manifest:
    """Return a copy of a JSON object with the differences whose fields have their old value."""
    changed = copy.deepcopy(target)
    for difference in differences:
        parent = _find_parent(changed, difference.path)
        name = difference.path[-1]
        if parent is None or not _is_same(parent.get(name, ABSENT), difference.before):
            continue
        if difference.after is ABSENT:
            parent.pop(name, None)
        else:
            parent[name] = copy.deepcopy(difference.after)
    return changed


def _find_parent(target: Manifest, path: tuple[str, ...]) -> Manifest | None:
    place: Any = target
    for name in path[:-1]:
        place = place.get(name)
        if not isinstance(place, dict):
            return None
    found: Manifest = place
    return found


def _is_same(one: Any, other: Any) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    # In Python, 1, 1.0 and True are equal.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
