"""Schemas of objects: the structural part of OpenAPI, parsed once and walked often.

One class serves built-in kinds (from `builtins.json`) and custom ones (from their CRD).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from libs.common.kinds import Manifest

META_REF = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class Definitions:
    """The schemas of built-in kinds, with resolved references; each is parsed at most once."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        """Keep the raw definitions by name."""
        self._raw = raw
        self._parsed: dict[str, Schema] = {}

    def get(self, name: str) -> Schema:
        """Return the schema of a definition."""
        if name not in self._parsed:
            self._parsed[name] = Schema(self._raw.get(name, {}), self)
            self._parsed[name].name = name
        return self._parsed[name]

    def metadata(self) -> Schema:
        """Return the schema of `metadata`, which custom kinds share with built-in ones."""
        return self.get(META_REF)


class Schema:
    """The schema of one value: its type, its constraints, and its merge strategy.

    Attributes:
        raw: The OpenAPI node; constraints are read from it.
        type: `object`, `array`, `string`, `integer`, `number`, `boolean`, or empty for anything.
        list_type: `atomic`, `set`, `map`, or empty where the value is no list.
        list_keys: Fields that identify an item of a `map` list.
        atomic_map: Whether a map belongs to one manager as a whole.
        preserve: Whether unknown fields are kept.
        quantity: Whether the value is a resource quantity, equal in many spellings.
        name: Definition name, for built-in kinds.
    """

    __slots__ = (
        "_additional",
        "_definitions",
        "_items",
        "_properties",
        "_ruled",
        "atomic_map",
        "default",
        "has_default",
        "int_or_string",
        "list_keys",
        "list_type",
        "name",
        "pattern",
        "preserve",
        "raw",
        "type",
    )

    def __init__(self, raw: Mapping[str, Any], definitions: Definitions | None = None) -> None:
        """Parse one node; children are parsed when they are first asked for."""
        self.raw = raw
        self._definitions = definitions
        self._properties: dict[str, Schema] | None = None
        self._items: Schema | None = None
        self._additional: Schema | None = None
        self._ruled: bool | None = None
        self.name = ""
        self.type: str = raw.get("type", "")
        self.list_type: str = raw.get(
            "x-kubernetes-list-type", "atomic" if self.type == "array" else ""
        )
        self.list_keys: tuple[str, ...] = tuple(sorted(raw.get("x-kubernetes-list-map-keys", ())))
        self.atomic_map: bool = raw.get("x-kubernetes-map-type") == "atomic"
        # A built-in object without declared fields is opaque, such as `fieldsV1`.
        opaque = (
            definitions is not None
            and self.type == "object"
            and not (raw.get("properties") or raw.get("additionalProperties"))
        )
        self.preserve: bool = opaque or bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self.int_or_string: bool = bool(raw.get("x-kubernetes-int-or-string"))
        self.has_default = "default" in raw
        self.default: Any = raw.get("default")
        # The end of a text in RE2 is not the newline before it.
        pattern = re.sub(r"\$(?=\)*\Z)", r"\\Z", raw.get("pattern", ""))
        self.pattern = re.compile(pattern) if pattern else None

    @property
    def properties(self) -> dict[str, Schema]:
        """Declared fields by name."""
        if self._properties is None:
            children = self.raw.get("properties", {})
            self._properties = {name: self._child(raw) for name, raw in children.items()}
            if self.raw.get("x-kubernetes-embedded-resource"):
                for name in ("apiVersion", "kind"):
                    self._properties.setdefault(name, Schema({"type": "string"}))
                self._properties.setdefault("metadata", FREE)
        return self._properties

    @property
    def items(self) -> Schema:
        """Schema of the items of a list."""
        if self._items is None:
            self._items = self._child(self.raw["items"]) if "items" in self.raw else FREE
        return self._items

    @property
    def additional(self) -> Schema | None:
        """Schema of the values of a free map; None where keys must be declared."""
        extra = self.raw.get("additionalProperties")
        if self._additional is None and extra:
            self._additional = self._child(extra) if isinstance(extra, Mapping) else FREE
        return self._additional

    @property
    def ruled(self) -> bool:
        """Whether this value or one inside has a rule in CEL (custom kinds only)."""
        if self._ruled is None:
            self._ruled = _has_rules(self.raw)
        return self._ruled

    def field(self, name: str) -> Schema | None:
        """Return the schema of a field, or None if it is not declared."""
        found = self.properties.get(name)
        if found is None:
            found = self.additional or (FREE if self.preserve or not self.type else None)
        return found

    def declares(self, name: str) -> bool:
        """Return whether the field is declared by name, not merely allowed."""
        return name in self.properties

    def _child(self, raw: Mapping[str, Any]) -> Schema:
        if "$ref" in raw and self._definitions is not None:
            target = self._definitions.get(raw["$ref"])
            if "default" not in raw and "x-kubernetes-map-type" not in raw:
                return target
            # The place of use adds a default or a map type to the shared definition.
            merged = Schema(
                {**target.raw, **{k: v for k, v in raw.items() if k != "$ref"}}, self._definitions
            )
            merged.name = target.name
            return merged
        return Schema(raw, self._definitions)


def _has_rules(raw: Mapping[str, Any]) -> bool:
    children = [
        *raw.get("properties", {}).values(),
        raw.get("items"),
        raw.get("additionalProperties"),
    ]
    return "x-kubernetes-validations" in raw or any(
        _has_rules(child) for child in children if isinstance(child, Mapping)
    )


FREE = Schema({"x-kubernetes-preserve-unknown-fields": True})
"""The schema of what is not described: maps merge by key, lists are atomic."""


def build_custom_schema(raw: Mapping[str, Any], definitions: Definitions) -> Schema:
    """Build the schema of a custom kind, with the envelope that every object has.

    Args:
        raw: `openAPIV3Schema` of the CRD version; it may lack the envelope.
        definitions: Built-in definitions, for `metadata`.
    """
    properties: Manifest = dict(raw.get("properties", {}))
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    schema = Schema({**raw, "type": "object", "properties": properties})
    limits = properties.get("metadata", {})
    fields = schema.properties
    fields["metadata"] = definitions.metadata()
    schema.name = str(limits.get("title", ""))
    return schema
