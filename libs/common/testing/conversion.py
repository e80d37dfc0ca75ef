"""Tests of conversions: generated objects of every version survive a round trip.

```python
def test_conversion_loses_nothing() -> None:
    check_round_trips(CONVERSION)
```
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import permutations
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.crd import (
    Conversion,
    CustomResource,
    ParseError,
    build_object_schema,
)
from libs.common.crd.normal_form import normalize
from libs.common.kinds import Manifest, build_object
from libs.common.labels import CONVERSION_DATA

__all__ = ["build_objects", "check_round_trips"]

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_ITEMS: Final = 3
_LENGTH: Final = 12
_NUMBERS: Final = 1000
_KEYS: Final = st.from_regex(r"[a-z]{1,5}", fullmatch=True)
_TEXT: Final = st.characters(min_codepoint=32, max_codepoint=0x17F)
_FORMATS: Final[Mapping[str, st.SearchStrategy[str]]] = {
    "date-time": st.datetimes().map(lambda time: time.strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20)),
}


def check_round_trips(conversion: Conversion, *, examples: int = 100) -> None:
    """Check that conversions between all pairs of versions are lossless and give valid objects.

    Args:
        conversion: Versions of a kind.
        examples: Number of generated objects for each pair.

    Raises:
        AssertionError: An object differs after a conversion to another version and back, or the
            converted object does not match its model. Hypothesis shows the smallest object.
        ConversionError: An object cannot be converted.
    """
    for source, target in permutations(conversion.models, 2):
        _check_pair(conversion, source, target, examples)


def build_objects(model: type[CustomResource]) -> st.SearchStrategy[Manifest]:
    """Return a strategy of valid objects of a version, as the API server returns them.

    The rules of the model in CEL are not considered.
    """
    schema = build_object_schema(model).schema
    parts = {name: schema["properties"][name] for name in schema["properties"]}
    for name in ("apiVersion", "kind", "metadata"):
        del parts[name]
    bodies = _from_schema({**schema, "properties": parts})

    def build(body: Manifest) -> Manifest:
        manifest = build_object(model.crd_meta.kind, "generated", "default", **body)
        return normalize(model, manifest)

    return bodies.map(build).filter(lambda manifest: _find_error(model, manifest) is None)


def _check_pair(
    conversion: Conversion,
    source: type[CustomResource],
    target: type[CustomResource],
    examples: int,
) -> None:
    versions = [model.crd_meta.kind.api_version for model in (source, target)]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(build_objects(source))
    def check(manifest: Manifest) -> None:
        converted = conversion.convert(manifest, versions[1])
        error = _find_error(target, converted)
        assert error is None, f"{versions[0]} to {versions[1]}: {error}"
        # Between the two conversions, the object is stored.
        stored = json.loads(json.dumps(converted))
        returned = conversion.convert(stored, versions[0])
        assert returned == manifest, f"{versions[0]} to {versions[1]} and back loses data"
        annotations = returned["metadata"].get("annotations") or {}
        assert CONVERSION_DATA not in annotations

    check()


def _find_error(model: type[CustomResource], manifest: Manifest) -> ParseError | None:
    try:
        model.parse(manifest)
    except ParseError as error:
        return error
    return None


def _from_schema(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if schema.get("enum"):
        return st.sampled_from(list(schema["enum"]))
    if schema.get(_INT_OR_STRING):
        texts = _texts(schema) if "pattern" in schema else st.sampled_from(["10%", "25%"])
        return st.integers(0, _NUMBERS) | texts
    match schema.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            low = int(schema.get("minimum", -_NUMBERS))
            return st.integers(low, int(schema.get("maximum", max(low, _NUMBERS))))
        case "number":
            return st.floats(-_NUMBERS, _NUMBERS)
        case "string":
            return _texts(schema)
        case "array":
            return _lists(schema)
        case _:
            return _maps(schema)


def _texts(schema: Mapping[str, Any]) -> st.SearchStrategy[str]:
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    low = int(schema.get("minLength", 0))
    high = int(schema.get("maxLength", low + _LENGTH))
    if pattern := schema.get("pattern"):
        texts = st.from_regex(pattern, fullmatch=True, alphabet=_TEXT)
        return texts.filter(lambda text: low <= len(text) <= high)
    return st.text(_TEXT, min_size=low, max_size=min(high, low + _LENGTH))


def _lists(schema: Mapping[str, Any]) -> st.SearchStrategy[list[Any]]:
    low = int(schema.get("minItems", 0))
    high = max(low, min(int(schema.get("maxItems", _ITEMS)), _ITEMS))
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    unique = None
    if schema.get("x-kubernetes-list-type") in ("map", "set"):

        def unique(item: Any) -> str:
            return json.dumps([item.get(key) for key in keys] if keys else item)

    return st.lists(_from_schema(schema["items"]), min_size=low, max_size=high, unique_by=unique)


def _maps(schema: Mapping[str, Any]) -> st.SearchStrategy[Manifest]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    required = schema.get("required") or ()
    fields = {name: _from_schema(child) for name, child in properties.items()}
    maps = st.fixed_dictionaries(
        {name: fields[name] for name in required},
        optional={name: field for name, field in fields.items() if name not in required},
    )
    rest = schema.get("additionalProperties")
    if isinstance(rest, Mapping):
        return st.dictionaries(_KEYS, _from_schema(rest), max_size=_ITEMS)
    if schema.get(_PRESERVE) and not properties:
        return st.dictionaries(_KEYS, st.integers() | st.text(_TEXT), max_size=_ITEMS)
    return maps
