"""Markers for `Annotated`: parts of a Kubernetes schema that a Python type cannot express.

Each marker writes one extension keyword into the JSON schema of pydantic; `schema.py` converts the
keywords to keywords of the API server. Keywords with the prefix `x-slipway-` are internal and never
leave the generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from libs.common.kinds import Manifest

VALIDATIONS: Final = "x-kubernetes-validations"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
WAIVE: Final = "x-slipway-waive"
IMMUTABLE: Final = "x-slipway-immutable"
VERBATIM: Final = "x-slipway-verbatim"

type RuleReason = Literal[
    "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"
]


class _Keywords:
    """Base of markers that add keywords to the schema of the type they annotate."""

    __slots__ = ()

    def keywords(self) -> Manifest:
        """Return the keywords to add."""
        raise NotImplementedError

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Manifest:
        """Add the keywords; lists and maps are merged with existing ones."""
        return join_keywords(dict(handler(core_schema)), self.keywords())


@dataclass(frozen=True, slots=True)
class Rule(_Keywords):
    """A CEL rule on a field, a model or the whole object, which the API server enforces.

    Attributes:
        rule: CEL expression; `self` is the annotated value, `oldSelf` makes it a transition rule.
        reason: Cause that the API server reports.
        field_path: Path below `self` that the error names, such as `.replicas`.
        message_expression: CEL expression for the message, when it needs a value.
        optional_old_self: Whether the rule also runs on create, with `oldSelf` an optional.
    """

    rule: str
    message: str
    reason: RuleReason = "FieldValueInvalid"
    field_path: str = ""
    message_expression: str = ""
    optional_old_self: bool = False

    def keywords(self) -> Manifest:
        """Return the rule as a list with one entry."""
        return {VALIDATIONS: [self.to_manifest()]}

    def to_manifest(self) -> Manifest:
        """Build the entry of `x-kubernetes-validations` without defaults."""
        entry: Manifest = {"rule": self.rule, "message": self.message}
        if self.message_expression:
            entry["messageExpression"] = self.message_expression
        if self.reason != "FieldValueInvalid":
            entry["reason"] = self.reason
        if self.field_path:
            entry["fieldPath"] = self.field_path
        if self.optional_old_self:
            entry["optionalOldSelf"] = True
        return entry


@dataclass(frozen=True, slots=True)
class Immutable(_Keywords):
    """The field is immutable.

    Attributes:
        once: Whether an optional field can be set later and is immutable only from then on.
    """

    once: bool = False

    def keywords(self) -> Manifest:
        """Return the keyword that the object schema turns into rules."""
        return {IMMUTABLE: "once" if self.once else "always"}


class ListMap(_Keywords):
    """The list is a map by key fields: appliers own single items, keys are unique."""

    __slots__ = ("keys",)

    def __init__(self, *keys: str) -> None:
        """Take the serialized names of the key fields."""
        self.keys = keys

    def keywords(self) -> Manifest:
        """Return list type and keys."""
        return {LIST_TYPE: "map", LIST_MAP_KEYS: list(self.keys)}


class ListSet(_Keywords):
    """The list is a set of scalars: appliers own single items, values are unique."""

    __slots__ = ()

    def keywords(self) -> Manifest:
        """Return the list type."""
        return {LIST_TYPE: "set"}


class ListAtomic(_Keywords):
    """The list has one owner and is replaced as a whole; this is the default."""

    __slots__ = ()

    def keywords(self) -> Manifest:
        """Return the list type."""
        return {LIST_TYPE: "atomic"}


class MapAtomic(_Keywords):
    """The map or object has one owner and is replaced as a whole."""

    __slots__ = ()

    def keywords(self) -> Manifest:
        """Return the map type."""
        return {MAP_TYPE: "atomic"}


@dataclass(frozen=True, slots=True)
class IntFormat(_Keywords):
    """Width of an integer, if its bounds do not determine it."""

    format: Literal["int32", "int64"]

    def keywords(self) -> Manifest:
        """Return the format."""
        return {"format": self.format}


@dataclass(frozen=True, slots=True)
class Waive(_Keywords):
    """An exemption of a field from a rule of the API lint.

    Attributes:
        rule: Name of the rule, such as `no-booleans`.
        reason: Why the rule does not apply here; the lint reports a missing reason.
    """

    rule: str
    reason: str

    def keywords(self) -> Manifest:
        """Return the waiver as a map from rule to reason."""
        return {WAIVE: {self.rule: self.reason}}


@dataclass(frozen=True, slots=True)
class Verbatim(_Keywords):
    """A schema fragment that replaces the schema of pydantic.

    The fragment is copied unchanged, so use this only for the types of this package.
    """

    schema: Mapping[str, Any] = field(default_factory=dict)

    def keywords(self) -> Manifest:
        """Return the fragment under the internal keyword."""
        return {VERBATIM: dict(self.schema)}

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Manifest:
        """Ignore the type and use only the fragment."""
        return self.keywords()


def join_keywords(schema: Manifest, extra: Mapping[str, Any]) -> Manifest:
    """Merge the keywords of two layers: the second wins, but rules and waivers of both are kept."""
    joined = {**schema, **extra}
    if VALIDATIONS in schema and VALIDATIONS in extra:
        joined[VALIDATIONS] = [*schema[VALIDATIONS], *extra[VALIDATIONS]]
    if WAIVE in schema and WAIVE in extra:
        joined[WAIVE] = {**schema[WAIVE], **extra[WAIVE]}
    return joined
