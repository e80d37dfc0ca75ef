"""API lint: conventions of the Kubernetes API that a valid schema can violate.

Each rule has a name. A field that must violate a rule has a waiver with a reason at its definition:
`Annotated[bool, Waive("no-booleans", "the predecessor had it so")]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from libs.common.crd.build import build_object_schema
from libs.common.crd.definition import CustomResource
from libs.common.crd.markers import INT_OR_STRING, LIST_MAP_KEYS, LIST_TYPE, PRESERVE_UNKNOWN
from libs.common.kinds import Manifest

_BOUNDED_FORMATS: Final = frozenset({"date-time", "date", "ipv4", "ipv6", "uuid", "cidr"})
_CAMEL: Final = re.compile(r"[a-z][a-zA-Z0-9]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """A field that violates a rule.

    Attributes:
        kind: Kind and version, such as `PodSet v1`.
        path: Serialized path of the field.
        rule: Name of the rule, as `Waive` takes it.
        message: The problem and how to fix it.
    """

    kind: str
    path: str
    rule: str
    message: str

    def __str__(self) -> str:
        """Render as one line of a report."""
        return f"{self.kind}: {self.path}: {self.rule}: {self.message}"


@dataclass(frozen=True, slots=True)
class _Field:
    """A node of a schema with its path."""

    path: str
    name: str
    schema: Manifest
    required: bool
    is_property: bool


type _Check = Callable[[_Field], str | None]


def lint_crd(model: type[CustomResource]) -> list[Finding]:
    """Return the findings in the schema of a kind that are not waived."""
    built = build_object_schema(model)
    meta = model.crd_meta
    return lint_schema(built.schema, built.waivers, kind=f"{meta.kind.kind} {meta.kind.version}")


def lint_schema(
    schema: Manifest, waivers: Mapping[str, Mapping[str, str]], *, kind: str
) -> list[Finding]:
    """Check the schema of an object.

    A waiver without a reason or without effect is a finding as well.
    """
    used: set[tuple[str, str]] = set()
    findings = []
    for field in _walk_fields(schema):
        for rule, check in RULES.items():
            if (message := check(field)) is None:
                continue
            if waivers.get(field.path, {}).get(rule):
                used.add((field.path, rule))
            else:
                findings.append(Finding(kind, field.path, rule, message))
    for path, rules in waivers.items():
        for rule in rules.keys() - {one for place, one in used if place == path}:
            message = f"the waiver of {rule!r} has no effect or no reason; remove or explain it"
            findings.append(Finding(kind, path, "waiver", message))
    return findings


def _walk_fields(schema: Manifest) -> Iterator[_Field]:
    """Yield every field below spec, status and further top-level fields, parents first."""
    for name, child in schema.get("properties", {}).items():
        if name not in ("apiVersion", "kind", "metadata"):
            yield from _walk(_Field(name, name, child, name in schema.get("required", ()), True))


def _walk(field: _Field) -> Iterator[_Field]:
    yield field
    schema = field.schema
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        yield from _walk(_Field(f"{field.path}.{name}", name, child, name in required, True))
    if "items" in schema:
        yield from _walk(_Field(f"{field.path}[]", field.name, schema["items"], False, False))
    if isinstance(schema.get("additionalProperties"), dict):
        values = schema["additionalProperties"]
        yield from _walk(_Field(f"{field.path}{{}}", field.name, values, False, False))


def _check_floats(field: _Field) -> str | None:
    if field.schema.get("type") != "number":
        return None
    return "numbers with fractions do not survive a round trip; use an integer or a Quantity"


def _check_int_format(field: _Field) -> str | None:
    if field.schema.get("type") != "integer" or field.schema.get("format") in ("int32", "int64"):
        return None
    return "an integer needs the format int32 or int64"


def _check_max_length(field: _Field) -> str | None:
    schema = field.schema
    is_text = schema.get("type") == "string" or INT_OR_STRING in schema
    bounded = "maxLength" in schema or "enum" in schema
    if not is_text or bounded or schema.get("format") in _BOUNDED_FORMATS:
        return None
    return "a string needs a longest length: a type such as DnsLabel, or Field(max_length=...)"


def _check_max_items(field: _Field) -> str | None:
    if field.schema.get("type") != "array" or "maxItems" in field.schema:
        return None
    return "a list needs a largest size: Field(max_length=...)"


def _check_max_properties(field: _Field) -> str | None:
    if "additionalProperties" not in field.schema or "maxProperties" in field.schema:
        return None
    return "a map needs a largest size: Field(max_length=...)"


def _check_list_type(field: _Field) -> str | None:
    schema = field.schema
    if schema.get("type") != "array":
        return None
    if schema.get(LIST_TYPE) == "set" and schema["items"].get("type") in ("object", "array"):
        return "a set holds scalars only; use ListMap"
    return None if LIST_TYPE in schema else "a list needs ListMap, ListSet or ListAtomic"


def _check_booleans(field: _Field) -> str | None:
    if field.schema.get("type") != "boolean":
        return None
    return "a boolean cannot be extended by a third value; use an enum of two values"


def _check_phase(field: _Field) -> str | None:
    if not field.is_property or field.name.lower() not in ("phase", "state"):
        return None
    return "a phase cannot express what conditions express; use conditions instead"


def _check_conditions(field: _Field) -> str | None:
    if field.path == "status":
        properties = list(field.schema.get("properties", {}))
        if properties and properties[0] != "conditions":
            return "conditions must be the first field of a status"
    if field.path == "status.conditions":
        keys = field.schema.get(LIST_MAP_KEYS)
        if field.schema.get(LIST_TYPE) != "map" or keys != ["type"]:
            return "conditions must be a list-map by type; use the type Conditions"
    return None


def _check_description(field: _Field) -> str | None:
    if not field.is_property:
        return None
    text = field.schema.get("description", "")
    if not text:
        return "needs a docstring under the field"
    if not text.startswith(f"{field.name} "):
        return f"its docstring must begin with {field.name!r}"
    return None if text.endswith((".", ":", "```")) else "its docstring must end with a period"


def _check_default(field: _Field) -> str | None:
    if field.required and "default" in field.schema:
        return "a field with a default is optional; drop it from required"
    return None


def _check_camel_case(field: _Field) -> str | None:
    if field.is_property and not _CAMEL.fullmatch(field.name):
        return "a field name is camelCase"
    return None


def _check_open_objects(field: _Field) -> str | None:
    schema = field.schema
    named = {"properties", "additionalProperties", PRESERVE_UNKNOWN} & schema.keys()
    empty_on_purpose = schema.get("maxProperties") == 0
    if schema.get("type") == "object" and not named and not empty_on_purpose:
        return "an object without fields is always empty: the API server prunes all keys"
    return None


RULES: Final[Mapping[str, _Check]] = {
    "no-floats": _check_floats,
    "int-format": _check_int_format,
    "max-length": _check_max_length,
    "max-items": _check_max_items,
    "max-properties": _check_max_properties,
    "list-type": _check_list_type,
    "no-booleans": _check_booleans,
    "no-phase": _check_phase,
    "conditions": _check_conditions,
    "description": _check_description,
    "default-not-required": _check_default,
    "camel-case": _check_camel_case,
    "no-empty-objects": _check_open_objects,
}
"""Every rule by the name that `Waive` takes."""
