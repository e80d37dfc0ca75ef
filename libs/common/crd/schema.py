"""Turn a pydantic model into a Kubernetes structural schema.

The JSON Schema of pydantic and the structural schemas of the API server overlap in part. Common
keywords are copied, keywords with another spelling are translated, and anything else is an error
that names the field: a schema that is weaker than the model would accept invalid input.

The translations: references are inlined; `title` is dropped; `anyOf [T, null]` becomes T, because
Kubernetes omits absent fields; `const` is an `enum` of one; numeric `exclusiveMinimum` becomes
`minimum` with a flag; lists get a list type; defaults that mean absent are dropped; integers get a
width. The description of a field with a default says so, except for objects.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, PydanticJsonSchemaWarning
from pydantic_core import core_schema

from libs.common.crd.errors import SchemaError
from libs.common.crd.immutable import build_immutable_rules
from libs.common.crd.markers import (
    EMBEDDED,
    IMMUTABLE,
    LIST_MAP_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE_UNKNOWN,
    VALIDATIONS,
    VERBATIM,
    WAIVE,
    join_keywords,
)
from libs.common.kinds import Manifest, drop_nulls

_ORDER: Final[tuple[str, ...]] = (
    *("description", "type", "format", "pattern", "enum", "default"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("required", "properties", "additionalProperties", "items"),
    *(LIST_TYPE, LIST_MAP_KEYS, MAP_TYPE, EMBEDDED, PRESERVE_UNKNOWN, VALIDATIONS),
)
_COMMON: Final = frozenset({"description", "type", "enum", "default", VALIDATIONS})
_NUMBER: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}
)
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(
        {"properties", "required", "additionalProperties", "minProperties", "maxProperties"}
        | {MAP_TYPE, PRESERVE_UNKNOWN, EMBEDDED}
    ),
    "array": frozenset({"items", "minItems", "maxItems", LIST_TYPE, LIST_MAP_KEYS}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": _NUMBER,
    "number": _NUMBER,
    "boolean": frozenset(),
}
_FORMATS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"date-time", "date", "byte", "ipv4", "ipv6", "cidr", "uuid", "uri"}),
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"float", "double"}),
}
_INT32: Final = (-(2**31), 2**31 - 1)
_DEFAULT: Final = re.compile(r"\bdefaults? to\b", re.IGNORECASE)
_LOOKAROUND: Final = re.compile(r"\(\?(<?[=!]|P[=>]|>)")


@dataclass(frozen=True, slots=True)
class StructuralSchema:
    """A structural schema, and the waivers of its fields for the API lint.

    Attributes:
        schema: The schema, in the form of a CRD.
    """

    schema: Manifest
    waivers: Mapping[str, Mapping[str, str]]


def build_schema(model: type[BaseModel]) -> StructuralSchema:
    """Build the structural schema of a model.

    Raises:
        SchemaError: Fields of the model have no counterpart; the error lists all of them with their
            paths.
    """
    raw = _render_json_schema(model)
    converter = _Converter(raw.pop("$defs", {}))
    schema = converter.convert(raw, "", ())
    if converter.problems:
        raise SchemaError(model.__name__, converter.problems)
    return StructuralSchema(schema, converter.waivers)


def _render_json_schema(model: type[BaseModel]) -> Manifest:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PydanticJsonSchemaWarning)
            raw = model.model_json_schema(
                by_alias=True, mode="validation", schema_generator=_Generator
            )
    except (PydanticInvalidForJsonSchema, PydanticJsonSchemaWarning) as err:
        raise SchemaError(model.__name__, [str(err).splitlines()[0]]) from err
    # A recursive model is a bare reference to its definition.
    return raw


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, extended by defaults that come from a factory."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        factory = schema.get("default_factory")
        if factory is not None and not schema.get("default_factory_takes_data"):
            made: Any = factory
            schema = {**schema, "default": made()}
            del schema["default_factory"]
        return super().default_schema(schema)


class _Converter:
    """A conversion: the definitions, and the problems and waivers found so far."""

    def __init__(self, definitions: Mapping[str, Manifest]) -> None:
        self._definitions = definitions
        self.problems: list[str] = []
        self.waivers: dict[str, dict[str, str]] = {}

    def convert(self, raw: Manifest, path: str, seen: tuple[str, ...]) -> Manifest:
        """Convert a node; `seen` are the definitions that contain it."""
        node, seen = self._flatten(raw, path, seen)
        node.pop("title", None)
        if waived := node.pop(WAIVE, None):
            self.waivers[path] = waived
        if VERBATIM in node:
            return _order({**_order_all(node.pop(VERBATIM)), **_keep_notes(node)})
        self._rename(node)
        kind = self._find_type(node, path)
        if kind is None:
            return {}
        self._check_keywords(node, kind, path)
        if kind == "object":
            self._convert_object(node, path, seen)
        elif kind == "array":
            self._convert_array(node, path, seen)
        else:
            self._convert_scalar(node, kind, path)
        if isinstance(node.get("default"), dict | list):
            # The API server refuses nulls there.
            node["default"] = drop_nulls(node["default"])
        if "description" in node:
            node["description"] = reflow(node["description"])
        return _order(node)

    def _flatten(
        self, raw: Manifest, path: str, seen: tuple[str, ...]
    ) -> tuple[Manifest, tuple[str, ...]]:
        """Resolve references and unions with null until a plain node remains."""
        node = dict(raw)
        while True:
            if reference := node.pop("$ref", None):
                name = str(reference).removeprefix("#/$defs/")
                if name in seen:
                    self._report(path, f"{name} contains itself; a structural schema is finite")
                    return {"type": "object"}, seen
                seen = (*seen, name)
                node = join_keywords(self._definitions[name], node)
            elif members := self._pick_members(node):
                if len(members) > 1:
                    self._report(
                        path, "a union must be IntOrString, or one optional field per variant"
                    )
                    return {"type": "object"}, seen
                node = join_keywords(members[0], node)
            else:
                break
        if node.get("default", ...) is None:
            del node["default"]
        return node, seen

    def _pick_members(self, node: Manifest) -> list[Manifest]:
        """Remove the members of a union from a node, and return them without null."""
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in node:
                node.pop("discriminator", None)
                return [one for one in node.pop(keyword) if one.get("type") != "null"]
        return []

    def _rename(self, node: Manifest) -> None:
        """Rename keywords that have another spelling in Kubernetes."""
        if "const" in node:
            node["enum"] = [node.pop("const")]
        if node.pop("uniqueItems", False):
            node.setdefault(LIST_TYPE, "set")
        for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if bound in node and not isinstance(node[bound], bool):
                node[limit] = node[bound]
                node[bound] = True

    def _find_type(self, node: Manifest, path: str) -> str | None:
        if "type" not in node and node.get("enum") and all_text(node["enum"]):
            node["type"] = "string"
        kind = node.get("type")
        if isinstance(kind, str) and kind in _KEYWORDS:
            return kind
        self._report(path, "has no type; use RawObject for an object of any shape")
        return None

    def _check_keywords(self, node: Manifest, kind: str, path: str) -> None:
        known = _COMMON | _KEYWORDS[kind] | {IMMUTABLE}
        for keyword in sorted(node.keys() - known):
            self._report(path, f"keyword {keyword!r} has no counterpart in a structural schema")
        formats = _FORMATS.get(kind, frozenset())
        if node.get("format") is not None and node["format"] not in formats:
            self._report(path, f"format {node['format']!r} is not known to the API server")
        if _LOOKAROUND.search(node.get("pattern", "")):
            self._report(
                path, "the pattern uses lookaround, which the API server's RE2 does not support"
            )

    def _convert_object(self, node: Manifest, path: str, seen: tuple[str, ...]) -> None:
        values = node.pop("additionalProperties", False)
        if "properties" in node:
            self._convert_properties(node, path, seen)
            if values:
                node[PRESERVE_UNKNOWN] = True
        elif isinstance(values, dict):
            node["additionalProperties"] = self.convert(values, f"{path}{{}}", seen)
            _drop_empty_default(node)
        elif values:
            self._report(path, "is an object of any shape; declare it as RawObject")

    def _convert_properties(self, node: Manifest, path: str, seen: tuple[str, ...]) -> None:
        properties: Manifest = {}
        rules: list[Manifest] = []
        for name, raw in node["properties"].items():
            child = self.convert(raw, f"{path}.{name}" if path else name, seen)
            if mode := child.pop(IMMUTABLE, None):
                always = name in node.get("required", ()) or "default" in child
                own, above = build_immutable_rules(name, mode, always_present=always)
                child[VALIDATIONS] = [*child.get(VALIDATIONS, ()), own]
                rules.extend(above)
            if not path.startswith("status"):
                _describe_default(child)
            properties[name] = _order(child)
        if properties:
            node["properties"] = properties
        else:
            # The API server drops an empty map, and tools that compare would set it forever.
            del node["properties"]
            node["maxProperties"] = 0
        if rules:
            node[VALIDATIONS] = [*node.get(VALIDATIONS, ()), *rules]
        if isinstance(node.get("default"), dict):
            node["default"] = _clean_default(node["default"], properties)

    def _convert_array(self, node: Manifest, path: str, seen: tuple[str, ...]) -> None:
        if not isinstance(node.get("items"), dict):
            self._report(path, "is a list of unknown items; name the type of one item")
            return
        node["items"] = self.convert(node["items"], f"{path}[]", seen)
        node.setdefault(LIST_TYPE, "atomic")
        if node[LIST_TYPE] != "map" and _reads_old_self(node["items"]):
            # The server refuses such a CRD, because it cannot match old and new items.
            self._report(path, "a rule on its items reads oldSelf, so the list must be a ListMap")
        _drop_empty_default(node)
        for key in node.get(LIST_MAP_KEYS, ()):
            item = node["items"]
            if key not in item.get("required", ()) and "default" not in item.get(
                "properties", {}
            ).get(key, {}):
                self._report(path, f"list-map key {key!r} must be required or have a default")

    def _convert_scalar(self, node: Manifest, kind: str, path: str) -> None:
        if kind == "integer" and "format" not in node:
            low, high = node.get("minimum", -(2**63)), node.get("maximum", 2**63)
            fits = _INT32[0] <= low and high <= _INT32[1]
            node["format"] = "int32" if fits else "int64"
        if "enum" in node and kind == "string" and not all_text(node["enum"]):
            self._report(path, f"enum {node['enum']!r} mixes types")
        _drop_empty_default(node)

    def _report(self, path: str, problem: str) -> None:
        self.problems.append(f"{path or 'the object'}: {problem}")


def all_text(values: list[Any]) -> bool:
    """Return whether all values of an enum are strings."""
    return all(isinstance(value, str) for value in values)


def reflow(text: str) -> str:
    """Join the lines of each paragraph of a docstring; viewers wrap text themselves."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def _describe_default(node: Manifest) -> None:
    """Add the default to a description, because `kubectl explain` does not show it."""
    default, text = node.get("default"), node.get("description")
    if text is None or default is None or isinstance(default, dict) or _DEFAULT.search(text):
        return
    value = str(default).lower() if isinstance(default, bool) else default
    if isinstance(default, list):
        value = ", ".join(str(item) for item in default)
    text, immutable, end = text.partition(" Immutable")
    node["description"] = f"{text} Defaults to {value}.{immutable}{end}"


def _reads_old_self(node: Manifest) -> bool:
    """Return whether a rule in a converted node uses the old value."""
    if IMMUTABLE in node or any("oldSelf" in one["rule"] for one in node.get(VALIDATIONS, ())):
        return True
    below = list(node.get("properties", {}).values())
    below += [node.get(name) for name in ("items", "additionalProperties")]
    return any(_reads_old_self(one) for one in below if isinstance(one, dict))


def _drop_empty_default(node: Manifest) -> None:
    """Drop a default that is equivalent to an absent value: empty text, list or map."""
    if node.get("default") in ("", [], {}):
        del node["default"]


def _clean_default(default: Manifest, properties: Mapping[str, Manifest]) -> Manifest:
    """Drop values that are equivalent to absent ones from the default of an object.

    Values that equal the defaults of properties are kept: the API server validates the default of
    an object before it applies the defaults of its properties.
    """
    kept: Manifest = {}
    for name, value in default.items():
        nested = properties.get(name, {}).get("properties")
        if isinstance(value, dict) and nested is not None:
            kept[name] = _clean_default(value, nested)
        elif value not in (None, "", [], {}):
            kept[name] = value
    return kept


def _keep_notes(node: Manifest) -> Manifest:
    """Keep the keywords that are allowed next to a verbatim fragment."""
    notes: Manifest = {
        name: node[name] for name in ("description", "default", IMMUTABLE) if name in node
    }
    if VALIDATIONS in node:
        notes[VALIDATIONS] = node[VALIDATIONS]
    if "description" in notes:
        notes["description"] = reflow(notes["description"])
    _drop_empty_default(notes)
    return notes


def _order_all(node: Any) -> Any:
    """Order the keywords of a verbatim fragment, which pydantic has sorted by name."""
    if isinstance(node, list):
        return [_order_all(item) for item in node]
    if not isinstance(node, dict):
        return node
    ordered = {name: _order_all(value) for name, value in node.items()}
    return _order(ordered) if "type" in ordered else ordered


def _order(node: Manifest) -> Manifest:
    known = {name: node[name] for name in _ORDER if name in node}
    return {**known, **{name: node[name] for name in sorted(node.keys() - known.keys())}}
