"""Label and field selectors, parsed as the API server does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.statuses import bad_request

type Predicate = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"^\s*([^\s,!=()]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s,!=()]+)\s*(==|=|!=)\s*([^\s,!=()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s,!=()]+)\s*$")


def parse_labels(text: str) -> Predicate | None:
    """Parse a label selector into a predicate on labels; None selects everything."""
    if not text.strip():
        return None
    checks = [_label_check(part) for part in _split(text)]
    return lambda labels: all(check(labels) for check in checks)


def _split(text: str) -> list[str]:
    # Commas inside parentheses belong to a set requirement.
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _label_check(part: str) -> Predicate:
    if found := _SET.match(part):
        key, operator, listed = found.groups()
        values = frozenset(value.strip() for value in listed.split(","))
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.match(part):
        key, operator, value = found.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(part):
        absent, key = found.groups()
        return lambda labels: (key in labels) is not bool(absent)
    found = re.fullmatch(r"\s*\S+\s+(in|notin)\s+([^\s(]\S*)\s*", part)
    text = f"'{found[2]}' expected: '('" if found else f"{part.strip()!r}"
    raise bad_request(f"unable to parse requirement: found {text}")


def parse_fields(
    text: str, selectable: frozenset[str], *, builtin: bool = True
) -> Predicate | None:
    """Parse a field selector into a predicate on objects; None selects everything.

    Args:
        text: Such as `metadata.name=web,status.phase!=Failed`.
        selectable: Fields that this resource supports besides name and namespace.
        builtin: Whether the resource is a built-in one, which decides the words of the refusal.
    """
    if not text.strip():
        return None
    checks = [
        _field_check(part, selectable, builtin=builtin) for part in text.split(",") if part.strip()
    ]
    return lambda manifest: all(check(manifest) for check in checks)


def _field_check(part: str, selectable: frozenset[str], *, builtin: bool) -> Predicate:
    found = _EQUAL.match(part)
    if found is None:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    path, operator, value = found.groups()
    if path not in {"metadata.name", "metadata.namespace", *selectable}:
        # A built-in kind without fields of its own has the refusal of generic objects.
        if selectable or not builtin:
            raise bad_request(f"field label not supported: {path}")
        raise bad_request(
            f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        )
    equal = operator != "!="
    return lambda manifest: (field_text(manifest, path) == value) is equal


def field_text(manifest: Mapping[str, Any], path: str) -> str:
    """Return the value at a dotted path as field selectors compare it: as text, "" when absent."""
    value: Any = manifest
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if path in {"spec.hostNetwork", "spec.unschedulable"} else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def labels_of(manifest: Manifest) -> Mapping[str, str]:
    """Return the labels of an object, empty when it has none."""
    found: Mapping[str, str] = manifest.get("metadata", {}).get("labels") or {}
    return found
