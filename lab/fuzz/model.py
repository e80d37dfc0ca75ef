"""Our own model of what is valid: the structural part of a CRD, written a second time. Pure.

The API server is asked the same; where the two disagree, one of them is wrong. Rules in CEL are
not evaluated: what only they refuse is known by their messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from lab.fuzz.fields import INT_OR_STRING, PRESERVE
from libs.common.kinds import Manifest

_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\Z")


def check(schema: Mapping[str, Any], value: Any, path: str = "spec") -> list[str]:
    """List what a value offends against, each as `path: what`."""
    if not _has_type(schema, value):
        return [f"{path}: is no {schema.get('type') or 'integer or string'}"]
    found = []
    if schema.get("enum") and value not in schema["enum"]:
        found.append(f"{path}: is none of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, dict):
        found += _check_object(schema, value, path)
    elif isinstance(value, list):
        found += _check_list(schema, value, path)
    elif isinstance(value, str):
        found += _check_text(schema, value, path)
    elif value is not None and not isinstance(value, bool):
        found += _check_number(schema, value, path)
    return found


def find_offenses(root: Mapping[str, Any], manifest: Manifest) -> list[str]:
    """List what the spec of an object offends against.

    Args:
        root: Schema of the whole object.
        manifest: The object.
    """
    spec = {"properties": {"spec": root["properties"]["spec"]}, "required": root.get("required")}
    held = {name: manifest[name] for name in ("spec",) if name in manifest}
    return [line.removeprefix(".") for line in check({"type": "object", **spec}, held, "")]


def rule_messages(schema: Mapping[str, Any]) -> list[str]:
    """Return the messages of all CEL rules of a schema."""
    rules = schema.get("x-kubernetes-validations") or ()
    found = [str(rule.get("message") or rule.get("rule")) for rule in rules]
    children: list[Any] = list((schema.get("properties") or {}).values())
    children += [schema.get("items"), schema.get("additionalProperties")]
    return found + [
        message
        for child in children
        if isinstance(child, Mapping)
        for message in rule_messages(child)
    ]


def _has_type(schema: Mapping[str, Any], value: Any) -> bool:
    if value is None:
        return bool(schema.get("nullable")) or not (schema.get("type") or INT_OR_STRING in schema)
    if schema.get(INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = _TYPES.get(schema.get("type", ""))
    if wanted is None:
        return True
    if isinstance(value, bool):
        return wanted is bool
    if wanted is int and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, wanted)


def _check_object(schema: Mapping[str, Any], value: Manifest, path: str) -> list[str]:
    properties = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    is_open = bool(rest or schema.get(PRESERVE))
    # The API server takes away unknown fields, and each null where none is allowed.
    present = {
        name: child
        for name, child in value.items()
        if (is_open or name in properties)
        and (child is not None or _has_type(properties.get(name) or rest or {}, None))
    }
    required = (name for name in schema.get("required") or () if name not in present)
    found = [
        f"{path}.{name}: is required"
        for name in required
        if "default" not in (properties.get(name) or {})
    ]
    found += _check_size(schema, len(present), path, "Properties")
    for name, child in present.items():
        declared = properties.get(name) or (rest if isinstance(rest, Mapping) else None)
        if declared is not None and not (schema.get(PRESERVE) and name not in properties):
            found += check(declared, child, f"{path}.{name}")
    return found


def _check_list(schema: Mapping[str, Any], value: list[Any], path: str) -> list[str]:
    found = _check_size(schema, len(value), path, "Items")
    for number, item in enumerate(value):
        found += check(schema.get("items") or {}, item, f"{path}[{number}]")
    kind = schema.get("x-kubernetes-list-type")
    if kind in ("set", "map"):
        keys = [_key_of(schema, item) if kind == "map" else repr(item) for item in value]
        if len(set(keys)) < len(keys):
            found.append(f"{path}: has an item twice")
    return found


def _key_of(schema: Mapping[str, Any], item: Any) -> str:
    names = schema.get("x-kubernetes-list-map-keys") or ()
    return repr([item.get(name) if isinstance(item, dict) else item for name in names])


def _check_text(schema: Mapping[str, Any], value: str, path: str) -> list[str]:
    found = _check_size(schema, len(value), path, "Length")
    pattern = schema.get("pattern")
    if pattern and re.search(re.sub(r"\$(?=\)*\Z)", r"\\Z", pattern), value) is None:
        found.append(f"{path}: does not match {pattern}")
    if schema.get("format") == "date-time" and _DATE_TIME.match(value) is None:
        found.append(f"{path}: is no date-time")
    return found


def _check_number(schema: Mapping[str, Any], value: float, path: str) -> list[str]:
    found = []
    if value < schema.get("minimum", value):
        found.append(f"{path}: is less than {schema['minimum']}")
    if value > schema.get("maximum", value):
        found.append(f"{path}: is more than {schema['maximum']}")
    limit = {"int32": 2**31, "int64": 2**63}.get(schema.get("format", ""))
    if limit is not None and not -limit <= value < limit:
        found.append(f"{path}: does not fit into {schema['format']}")
    return found


def _check_size(schema: Mapping[str, Any], size: int, path: str, what: str) -> list[str]:
    found = []
    if size < schema.get(f"min{what}", 0):
        found.append(f"{path}: is shorter than {schema[f'min{what}']}")
    if size > schema.get(f"max{what}", size):
        found.append(f"{path}: is longer than {schema[f'max{what}']}")
    return found
