"""Generators: for each place in a schema the values that break operators. Pure.

Values are listed, not drawn: each field meets each of its generators in every run, and hypothesis
puts several of them together. A value need not be valid: `FuzzSubject.find_offenses` checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from lab.fuzz.fields import ABSENT, INT_OR_STRING, PRESERVE, Field, build_sample, find_fit


class Generator(StrEnum):
    """Generator names one sort of values."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    QUANTITY = "quantity"
    STRING = "string"
    PATTERN = "pattern"
    INJECTION = "injection"
    NAME = "name"
    ADDRESS = "address"
    ENUM = "enum"
    ARRAY = "array"
    OBJECT = "object"
    UNKNOWN = "unknown field"
    MAP = "map"
    ABSENT = "absent"
    CONFUSION = "wrong type"
    NULL = "null"
    LARGE = "large"
    PINNED = "pinned"


INJECTIONS: Final = (
    "$(touch /tmp/owned)",
    "`id`",
    "; rm -rf /",
    "' OR '1'='1",
    "{{ .Values.secret }}",
    "${jndi:ldap://127.0.0.1/a}",
    "../../etc/passwd",
    "line\nbreak: true",
    "http://169.254.169.254/latest/meta-data/",
    "-Dfoo=bar",
)
"""Texts that do harm where a text is taken for a command, a template, a path or an address."""
_INTEGERS: Final = (0, -1, 1, 2, 5, 1000, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1)
_QUANTITIES: Final = (
    *("0", "1m", "0.1", "1e3", "1Ki", "-1Gi", "1.5Gi", "9E", "1 Gi", "", "1Gi", "20Gi", "8Ei"),
    *("100%", "25%", "-1%", "NaN", "1e9999", "0x10"),
)
_NAMES: Final = (
    *("a", "a" * 63, "a" * 64, "a" * 253, "a" * 254, "Upper", "under_score", "-dash", "dash-"),
    *("a.b.c", "a..b", "name.", "1", "default/other", "ümlaut", "\u202eright", "a b"),
)
_ADDRESSES: Final = (
    *("10.0.0.1", "10.0.0.0/8", "10.0.0.1/32", "10.0.0.0/31", "0.0.0.0/0", "256.0.0.1", "10.0.0"),
    *("010.0.0.1", "::1", "fd00::/64", "FD00::1", "::ffff:10.0.0.1", "10.0.0.9-10.0.0.1"),
    *("127.0.0.1", "169.254.169.254", "10.0.0.1/33"),
    *("http://10.0.0.1:8080/a", "pulsar://10.0.0.1:6650", "pulsar://a,b"),
)
_STRINGS: Final = ("", "a", " ", "0", "true", "null", "\x00", "\U0001f4a5" * 8)
_LARGE: Final = 70_000


def generate(field: Field) -> Iterator[tuple[Generator, Any]]:
    """Yield the values of a field with the generator of each."""
    schema, kind = field.schema, field.schema.get("type")
    yield Generator.ABSENT, ABSENT
    yield Generator.NULL, None
    if schema.get(INT_OR_STRING):
        yield from ((Generator.INTEGER, value) for value in _INTEGERS)
        yield from ((Generator.QUANTITY, value) for value in _QUANTITIES)
        yield from ((Generator.CONFUSION, value) for value in (True, 1.5, [1], {"a": 1}))
    elif kind == "boolean":
        yield from ((Generator.BOOLEAN, value) for value in (True, False))
        yield from ((Generator.CONFUSION, value) for value in ("true", 1))
    elif kind in ("integer", "number"):
        yield from ((Generator.INTEGER, value) for value in (*_INTEGERS, *_edges(schema)))
        yield from ((Generator.CONFUSION, value) for value in ("1", True, [1], 1.5))
    elif kind == "string":
        yield from _generate_texts(schema)
    elif kind == "array":
        yield from _generate_arrays(schema)
    elif kind == "object":
        yield from _generate_objects(schema)


def _edges(schema: Mapping[str, Any]) -> list[int]:
    bounds = [int(schema[name]) for name in ("minimum", "maximum") if name in schema]
    return [bound + step for bound in bounds for step in (-1, 0, 1)]


def _generate_texts(schema: Mapping[str, Any]) -> Iterator[tuple[Generator, Any]]:
    yield from ((Generator.CONFUSION, value) for value in (1, True, ["a"], {"a": "b"}))
    if schema.get("enum"):
        values = [str(value) for value in schema["enum"]]
        wrong = [values[0].lower(), values[0].upper(), f"{values[0]} ", "Unknown"]
        yield from ((Generator.ENUM, value) for value in (*values, *wrong))
        return
    yield from ((Generator.STRING, value) for value in (*_STRINGS, *_lengths(schema)))
    yield from ((Generator.PATTERN, value) for value in _near(schema.get("pattern", "")))
    yield from ((Generator.INJECTION, value) for value in INJECTIONS)
    yield from ((Generator.NAME, value) for value in _NAMES)
    yield from ((Generator.ADDRESS, value) for value in _ADDRESSES)
    yield Generator.LARGE, "x" * _LARGE


def _near(pattern: str) -> Iterator[str]:
    """Yield a text that fits a pattern, and texts that are an edit away from it."""
    if pattern:
        text = find_fit(pattern)
        yield from (text, text[1:], text[:-1], f"{text}!", f" {text}", text.swapcase(), text * 2)


def _lengths(schema: Mapping[str, Any]) -> list[str]:
    bounds = [int(schema[name]) for name in ("minLength", "maxLength") if name in schema]
    return ["a" * (bound + step) for bound in bounds for step in (-1, 0, 1) if bound + step >= 0]


def _generate_arrays(schema: Mapping[str, Any]) -> Iterator[tuple[Generator, Any]]:
    item = build_sample(schema["items"])
    values: list[list[Any]] = [
        [],
        [item],
        [item, item],
        [None],
        [item] * (int(schema.get("maxItems", 3)) + 1),
    ]
    others = schema["items"].get("enum") or ()
    values += [list(others), list(reversed(others))]
    yield from ((Generator.ARRAY, value) for value in values)
    yield from ((Generator.CONFUSION, value) for value in ("a", {"a": "b"}, 1))


def _generate_objects(schema: Mapping[str, Any]) -> Iterator[tuple[Generator, Any]]:
    sample = build_sample(schema)
    yield Generator.OBJECT, {}
    yield Generator.OBJECT, sample
    yield Generator.UNKNOWN, {**sample, "sweepUnknown": {"a": [1]}}
    yield from ((Generator.CONFUSION, value) for value in ("a", ["a"], 1))
    rest = schema.get("additionalProperties")
    if isinstance(rest, Mapping):
        item = build_sample(rest)
        many = {f"key-{number}": item for number in range(int(schema.get("maxProperties", 3)) + 1)}
        for entries in ({"a": item}, {"": item}, {"bad key!": item}, {"a" * 64: item}, many):
            yield Generator.MAP, entries
        yield Generator.MAP, {"a": None}
    if schema.get(PRESERVE):
        yield Generator.LARGE, {**sample, "annotations": {"a": "x" * _LARGE}}
