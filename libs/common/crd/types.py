"""Types for the fields of an API: each carries the bounds that the API server enforces.

Every string has a maximum length, and every list and map a maximum size: the API server uses them
to estimate the cost of CEL rules, and an object without bounds can grow until etcd refuses it. Pick
a type from here, or say `Annotated[str, Field(max_length=...)]`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from libs.common.conditions import render_time
from libs.common.crd.markers import INT_OR_STRING, PRESERVE_UNKNOWN, IntFormat, Rule, Verbatim
from libs.common.kinds import Manifest
from libs.common.quantity import parse_quantity

QUANTITY_PATTERN: Final = (
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"
)
"""Pattern of quantities; compatible with RE2. CEL compares `1e999999999` for half a minute."""
HUGE: Final = "string({0}).matches('[eE].?[0-9][0-9][0-9][0-9]')"
"""CEL that skips such a quantity: the API server also evaluates rules of values that it refuses."""
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL_KEY: Final = rf"^({_SUBDOMAIN}/)?{_QUALIFIED.replace('*', '{0,61}')}$"
_LONGEST_PREFIX: Final = 253

Int32 = Annotated[int, IntFormat("int32"), Field(ge=-(2**31), le=2**31 - 1)]
"""A 32-bit number."""

Count = Annotated[int, IntFormat("int32"), Field(ge=0)]
"""A non-negative number."""

ObservedGeneration = Annotated[int, IntFormat("int64"), Field(ge=0)]
"""A `metadata.generation`."""

Port = Annotated[int, Field(ge=1, le=65535)]
"""A TCP or UDP port."""

DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")]
"""A name of at most 63 lower-case letters, digits and dashes (RFC 1123 label)."""

DnsSubdomain = Annotated[str, Field(min_length=1, max_length=253, pattern=f"^{_SUBDOMAIN}$")]
"""The name of most objects: labels joined by dots, at most 253 characters (RFC 1123 subdomain)."""

LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=_LABEL_KEY)]
"""The key of a label or annotation, with or without a prefix."""

LabelValue = Annotated[str, Field(max_length=63, pattern=f"^({_QUALIFIED})?$")]
"""The value of a label; may be empty."""

Uid = Annotated[str, Field(max_length=128)]
"""The `metadata.uid` of an object; opaque."""

ShortText = Annotated[str, Field(max_length=256)]
"""A line of text."""

LongText = Annotated[str, Field(max_length=32_768)]
"""Text with the maximum length of a condition message."""

SELECTOR_LIMIT: Final = 4_096
"""Length of the longest label selector in a status."""

Selector = Annotated[str, Field(max_length=SELECTOR_LIMIT)]
"""A label selector as text, as the scale subresource requires it."""

# A structural schema cannot constrain the keys of a map, so a rule does.
_KEYS_MESSAGE: Final = (
    "must be a qualified name such as app or example.com/team; the part after the slash has at most"
    " 63 characters"
)
_KEYS_RULE: Final = Rule(
    f"self.all(key, key.matches(r'{_LABEL_KEY}') && key.indexOf('/') <= {_LONGEST_PREFIX})",
    f"keys {_KEYS_MESSAGE}",
)


def _check_key(value: str) -> str:
    if not re.fullmatch(_LABEL_KEY, value) or value.find("/") > _LONGEST_PREFIX:
        raise ValueError(f"key {value!r} {_KEYS_MESSAGE}")
    return value


_MapKey = Annotated[str, AfterValidator(_check_key)]

LabelMap = Annotated[dict[_MapKey, LabelValue], Field(max_length=64), _KEYS_RULE]
"""Labels; their keys are validated like the labels of any object."""

AnnotationMap = Annotated[dict[_MapKey, LongText], Field(max_length=64), _KEYS_RULE]
"""Annotations; their keys have the same format as keys of labels."""


def _as_text(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _check_quantity(value: str) -> str:
    parse_quantity(value)
    return value


def _check_int_or_string(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be an integer or a string")  # noqa: TRY004 pydantic reports these
    return value


def _check_int_or_quantity(value: Any) -> Any:
    value = _check_int_or_string(value)
    return _check_quantity(value) if isinstance(value, str) else value


_INT_OR_STRING: Final = {"anyOf": [{"type": "integer"}, {"type": "string"}], INT_OR_STRING: True}

Quantity = Annotated[
    str,
    BeforeValidator(_as_text),
    AfterValidator(_check_quantity),
    Verbatim({**_INT_OR_STRING, "maxLength": 64, "pattern": QUANTITY_PATTERN}),
]
"""An amount such as `10Gi` or `500m`, kept as text; `parse_quantity` gives its value."""

IntOrQuantity = Annotated[
    int | str,
    BeforeValidator(_check_int_or_quantity),
    Verbatim({**_INT_OR_STRING, "maxLength": 64, "pattern": QUANTITY_PATTERN}),
]
"""A quantity or an integer; keeps the distinction, for fields in which an integer has another
unit."""

IntOrString = Annotated[
    int | str,
    BeforeValidator(_check_int_or_string),
    Verbatim({**_INT_OR_STRING, "maxLength": 64}),
]
"""A number or a text such as `25%` or a port name."""


def _to_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("must be in the years 1 to 9999, in UTC") from None


Timestamp = Annotated[
    datetime,
    AfterValidator(_to_utc),
    PlainSerializer(render_time, return_type=str, when_used="json"),
    Verbatim({"type": "string", "format": "date-time"}),
]
"""A time in UTC, with a resolution of one second."""

RawObject = Annotated[Manifest, Verbatim({"type": "object", PRESERVE_UNKNOWN: True})]
"""An object that is passed on unchanged; the API server keeps all of its fields."""
