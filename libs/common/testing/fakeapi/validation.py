"""What the API server does to objects by their schema: default, prune, check types and values.

`allOf`/`anyOf`/`oneOf`/`not`, and formats except times and sizes of integers are not evaluated:
tests that depend on them need a real kube-apiserver. For each field of each kind, `lab/fuzz`
compares the result with the result of a real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.fields import item_element
from libs.common.testing.fakeapi.schema import FREE, Schema
from libs.common.testing.fakeapi.statuses import Cause

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\Z")
_LIMITS: Final = {"int32": 2**31, "int64": 2**63}
_ENVELOPE = ("apiVersion", "kind", "metadata")


def apply_defaults(value: Any, schema: Schema) -> Any:
    """Return the value with the defaults of its schema filled in."""
    if isinstance(value, dict):
        out = {}
        for name, child in value.items():
            declared = schema.field(name)
            if child is None and declared is not None and not _allows_null(declared):
                continue
            out[name] = child if declared is None else apply_defaults(child, declared)
        for name, declared in schema.properties.items():
            if name not in out and declared.has_default:
                out[name] = apply_defaults(_copy(declared.default), declared)
        return out
    if isinstance(value, list):
        return [apply_defaults(item, schema.items) for item in value]
    return value


def _allows_null(schema: Schema) -> bool:
    typed = bool(schema.type) or schema.int_or_string
    return not typed or bool(schema.raw.get("nullable"))


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value)) if isinstance(value, (dict, list)) else value


def prune(value: Any, schema: Schema, *, path: str = "", dropped: list[str] | None = None) -> Any:
    """Return the value without undeclared fields.

    Args:
        value: What the client sent.
        schema: What is declared.
        path: Where the value is, for `dropped`.
        dropped: Collects the paths of what was removed.
    """
    if isinstance(value, dict):
        out = {}
        for name, child in value.items():
            declared = schema.field(name)
            where = f"{path}.{name}" if path else name
            if declared is None:
                if dropped is not None:
                    dropped.append(where)
                continue
            out[name] = prune(child, declared, path=where, dropped=dropped)
        return out
    if isinstance(value, list):
        return [
            prune(item, schema.items, path=f"{path}[{index}]", dropped=dropped)
            for index, item in enumerate(value)
        ]
    return value


def drop_empty(value: Any, schema: Schema) -> Any:
    """Return the value as a built-in type encodes it: without empty lists and free maps."""
    if isinstance(value, dict):
        required = schema.raw.get("required", ())
        out = {}
        for name, child in value.items():
            declared = schema.field(name) or FREE
            empty = child == [] or (child == {} and declared.additional is not None)
            if empty and name not in required:
                continue
            out[name] = drop_empty(child, declared)
        return out
    if isinstance(value, list):
        return [drop_empty(item, schema.items) for item in value]
    return value


def find_type_errors(
    value: Any, schema: Schema, path: str = ""
) -> Iterator[tuple[str, str, str, Any]]:
    """Yield `(path, expected, found, value)` for each value of a wrong type."""
    if value is None:
        return
    if schema.type and not _has_type(value, schema):
        yield path, schema.type, _type_name(value), value
    elif isinstance(value, dict):
        for name, child in value.items():
            declared = schema.field(name)
            if declared is not None:
                yield from find_type_errors(child, declared, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            yield from find_type_errors(item, schema.items, path)


def _has_type(value: Any, schema: Schema) -> bool:
    if isinstance(value, bool):
        return schema.type == "boolean"
    if schema.type == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[schema.type])


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    for name in ("object", "array", "string", "integer", "number"):
        if isinstance(value, _TYPES[name]):
            return name
    return "null"


def validate(manifest: Manifest, schema: Schema) -> list[Cause]:
    """Return what the schema of a custom kind refuses, in the order of the fields."""
    causes: list[Cause] = []
    for name, declared in schema.properties.items():
        if name in manifest and name not in _ENVELOPE:
            causes.extend(_check(manifest[name], declared, name))
    causes.extend(
        Cause(name, "Required value", "FieldValueRequired")
        for name in schema.raw.get("required", ())
        if name not in manifest
    )
    return causes


def check_scale_path(manifest: Manifest, path: str) -> list[Cause]:
    """Return what is wrong with the replicas that a CRD declares for its `/scale`."""
    value: Any = manifest
    for part in path.lstrip(".").split("."):
        if not isinstance(value, dict):
            return [_not_accessible(value, path, "map[string]interface{}")]
        if part not in value:
            return []
        value = value[part]
    if isinstance(value, bool) or not isinstance(value, int):
        return [_not_accessible(value, path, "int64")]
    if value < 0:
        return [Cause(path, f"Invalid value: {value}: should be a non-negative integer")]
    return []


def _not_accessible(value: Any, path: str, wanted: str) -> Cause:
    names = {str: "string", float: "float64", bool: "bool", list: "[]interface {}"}
    found = names.get(type(value), "map[string]interface {}")
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    why = f"{path} accessor error: {shown} is of the type {found}, expected {wanted}"
    return Cause(path, f"Invalid value: 0: {why}")


def _check(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    if value is None:
        if not _allows_null(schema):
            yield _wrong_type(value, schema, path)
        return
    if schema.int_or_string:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            yield _wrong_type(value, schema, path)
        else:
            yield from _check_value(value, schema, path)
        return
    if schema.type and not _has_type(value, schema):
        yield _wrong_type(value, schema, path)
        if schema.type == "integer" and isinstance(value, float):
            why = f"Checked value must be of type integer (default format) in {path}"
            yield Cause("<nil>", f'Invalid value: "": {why}')
        return
    yield from _check_value(value, schema, path)
    if isinstance(value, dict):
        yield from _check_object(value, schema, path)
    elif isinstance(value, list):
        yield from _check_list(value, schema, path)


def _wrong_type(value: Any, schema: Schema, path: str) -> Cause:
    wanted = "integer,string" if schema.int_or_string else schema.type
    found = _type_name(value)
    shown = f'"{found}"'
    return Cause(
        path,
        f"Invalid value: {shown}: {path} in body must be of type {wanted}: {shown}",
        "FieldValueTypeInvalid",
    )


def _quote(value: Any) -> str:
    return orjson.dumps(value).decode()


def _check_value(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    raw = schema.raw
    if "enum" in raw and value not in raw["enum"]:
        listed = ", ".join(_quote(option) for option in raw["enum"])
        yield Cause(
            path,
            f"Unsupported value: {_quote(value)}: supported values: {listed}",
            "FieldValueNotSupported",
        )
    if isinstance(value, str):
        yield from _check_text(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _check_number(value, schema, path)


def _check_text(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    raw = schema.raw
    if "maxLength" in raw and len(value) > raw["maxLength"]:
        yield Cause(
            path,
            f"Too long: may not be more than {raw['maxLength']} bytes",
            "FieldValueTooLong",
        )
    elif "minLength" in raw and len(value) < raw["minLength"]:
        limit = raw["minLength"]
        yield _refuse(value, path, f"should be at least {limit} chars long")
    elif schema.pattern is not None and not schema.pattern.search(value):
        yield _refuse(value, path, f"should match '{raw['pattern']}'")
    if raw.get("format") == "date-time" and not _DATE_TIME.match(value):
        yield _refuse(value, path, f"must be of type date-time: {_quote(value)}")


def _check_number(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    raw = schema.raw
    if "minimum" in raw:
        low, strict = raw["minimum"], bool(raw.get("exclusiveMinimum"))
        if value < low or (strict and value == low):
            words = "greater than" if strict else "greater than or equal to"
            yield _refuse(value, path, f"should be {words} {low:g}")
    if "maximum" in raw:
        high, strict = raw["maximum"], bool(raw.get("exclusiveMaximum"))
        if value > high or (strict and value == high):
            words = "less than" if strict else "less than or equal to"
            yield _refuse(value, path, f"should be {words} {high:g}")
    limit = _LIMITS.get(raw.get("format", ""))
    if limit is not None and not -limit <= value < limit:
        why = f"Checked value must be of type {schema.type} with format {raw['format']} in {path}"
        yield Cause(path, f"Invalid value: {_quote(value)}: {why}")
    if "multipleOf" in raw and value % raw["multipleOf"]:
        yield _refuse(value, path, f"should be a multiple of {raw['multipleOf']:g}")


def _refuse(value: Any, path: str, why: str) -> Cause:
    return Cause(path, f"Invalid value: {_quote(value)}: {path} in body {why}")


def _check_object(value: Manifest, schema: Schema, path: str) -> Iterator[Cause]:
    for name, child in value.items():
        declared = schema.field(name)
        if declared is not None:
            yield from _check(child, declared, f"{path}.{name}")
    for name in schema.raw.get("required", ()):
        if name not in value:
            yield Cause(f"{path}.{name}", "Required value", "FieldValueRequired")
    if len(value) > schema.raw.get("maxProperties", len(value)):
        most = schema.raw["maxProperties"]
        yield Cause(
            path, f"Too many: {len(value)}: must have at most {most} items", "FieldValueTooMany"
        )
    if len(value) < schema.raw.get("minProperties", 0):
        least = schema.raw["minProperties"]
        yield _refuse(len(value), path, f"should have at least {least} properties")


def _check_list(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    for index, item in enumerate(value):
        yield from _check(item, schema.items, f"{path}[{index}]")
    if len(value) > schema.raw.get("maxItems", len(value)):
        most = schema.raw["maxItems"]
        yield Cause(
            path, f"Too many: {len(value)}: must have at most {most} items", "FieldValueTooMany"
        )
    if len(value) < schema.raw.get("minItems", 0):
        least = schema.raw["minItems"]
        yield _refuse(len(value), path, f"should have at least {least} items")
    if schema.list_type in ("set", "map"):
        yield from _check_unique(value, schema, path)


def _check_unique(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = item_element(item, schema)
        if element in seen:
            shown = _quote(item) if schema.list_type == "set" else element.partition(":")[2]
            yield Cause(f"{path}[{index}]", f"Duplicate value: {shown}", "FieldValueDuplicate")
        seen.add(element)
