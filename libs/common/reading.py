"""Read fields of raw objects of other writers: a value of an unexpected type counts as absent.

A view must never fail on an object of a newer or faulty writer: a reconcile that fails on somebody
else's object would stop for a reason that its user cannot see.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from libs.common.quantity import parse_quantity


def map_at(manifest: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the map at a path, or an empty map."""
    value: Any = manifest
    for name in path:
        # Nearly every map is a dict, and checking an abstract class takes several times as long.
        if type(value) is not dict and not isinstance(value, Mapping):
            return {}
        value = value.get(name)
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def text_at(manifest: Mapping[str, Any], *path: str) -> str:
    """Return the text at a path, or an empty text."""
    value = map_at(manifest, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def is_set_at(manifest: Mapping[str, Any], *path: str) -> bool:
    """Return whether the value at a path is the boolean true; the text `"true"` is not."""
    return map_at(manifest, *path[:-1]).get(path[-1]) is True


def int_at(manifest: Mapping[str, Any], *path: str) -> int | None:
    """Return the integer at a path, or None."""
    value = map_at(manifest, *path[:-1]).get(path[-1])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def maps_at(manifest: Mapping[str, Any], *path: str) -> list[Mapping[str, Any]]:
    """Return the items of the list at a path that are maps."""
    value = map_at(manifest, *path[:-1]).get(path[-1])
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def texts_at(manifest: Mapping[str, Any], *path: str) -> tuple[str, ...]:
    """Return the items of the list at a path that are texts."""
    value = map_at(manifest, *path[:-1]).get(path[-1])
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def text_map_at(manifest: Mapping[str, Any], *path: str) -> dict[str, str]:
    """Return the entries of the map at a path whose values are texts."""
    return {
        name: value for name, value in map_at(manifest, *path).items() if isinstance(value, str)
    }


def quantity_at(manifest: Mapping[str, Any], *path: str) -> Fraction | None:
    """Return the quantity at a path in base units, or None if it is absent or invalid."""
    value = map_at(manifest, *path[:-1]).get(path[-1])
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        return parse_quantity(value)
    except ValueError:
        return None


def time_at(manifest: Mapping[str, Any], *path: str) -> datetime | None:
    """Return the time at a path, or None if it is absent or invalid."""
    try:
        moment = datetime.fromisoformat(text_at(manifest, *path))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def condition_at(manifest: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """Return the condition of a type, or an empty map."""
    for condition in maps_at(manifest, "status", "conditions"):
        if condition.get("type") == type:
            return condition
    return {}


def holds_at(manifest: Mapping[str, Any], type: str) -> bool:
    """Return whether a condition is True for the current generation of the object.

    A condition without a generation counts as current: KubeVirt and others never set one.
    """
    condition = condition_at(manifest, type)
    observed = condition.get("observedGeneration")
    generation = map_at(manifest, "metadata").get("generation")
    stale = isinstance(observed, int) and isinstance(generation, int) and observed < generation
    return condition.get("status") == "True" and not stale
