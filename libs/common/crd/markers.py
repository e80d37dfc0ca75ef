"""Markers for `Annotated`: what a Kubernetes schema says and a Python type does not.

Each marker writes one extension keyword into the JSON schema that pydantic makes; `schema.py` turns
the keywords into those that the API server knows. Keywords that begin with `x-slipway-` are ours
and never leave the generator.
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
        """Add the keywords; those that are lists or maps are joined with what exists."""
        return join_keywords(dict(handler(core_schema)), self.keywords())


@dataclass(frozen=True, slots=True)
class Rule(_Keywords):
    """A CEL rule that the API server enforces, on a field, a model or the whole object.

    Attributes:
        rule: CEL expression; `self` is the annotated value, `oldSelf` makes it a transition rule.
        message: What the user reads when the rule fails.
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
        """Return the rule as the one entry of a list."""
        return {VALIDATIONS: [self.to_manifest()]}

    def to_manifest(self) -> Manifest:
        """Build the entry of `x-kubernetes-validations`, defaults left out."""
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
    """The field keeps the value that it was created with.

    Attributes:
        once: Whether an optional field may be set later, and is fixed only from then on.
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
    """Width of an integer, where its bounds do not tell."""

    format: Literal["int32", "int64"]

    def keywords(self) -> Manifest:
        """Return the format."""
        return {"format": self.format}


@dataclass(frozen=True, slots=True)
class Waive(_Keywords):
    """Excuse a field from one rule of the API lint.

    Attributes:
        rule: Name of the rule, such as `no-booleans`.
        reason: Why the rule does not hold here; shown by the lint when it is missing.
    """

    rule: str
    reason: str

    def keywords(self) -> Manifest:
        """Return the waiver as a map from rule to reason."""
        return {WAIVE: {self.rule: self.reason}}


@dataclass(frozen=True, slots=True)
class Verbatim(_Keywords):
    """A schema fragment that takes the place of what pydantic would say.

    The fragment is trusted: it is copied as it stands, so keep it to the types of this package.
    """

    schema: Mapping[str, Any] = field(default_factory=dict)

    def keywords(self) -> Manifest:
        """Return the fragment under our own keyword."""
        return {VERBATIM: dict(self.schema)}

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Manifest:
        """Ignore the type: only the fragment counts."""
        return self.keywords()


def join_keywords(schema: Manifest, extra: Mapping[str, Any]) -> Manifest:
    """Join keywords of two layers; the second wins, rules and waivers of both stay."""
    joined = {**schema, **extra}
    if VALIDATIONS in schema and VALIDATIONS in extra:
        joined[VALIDATIONS] = [*schema[VALIDATIONS], *extra[VALIDATIONS]]
    if WAIVE in schema and WAIVE in extra:
        joined[WAIVE] = {**schema[WAIVE], **extra[WAIVE]}
    return joined
