"""The normal form of an object: without unknown fields, with the defaults of its schema. Pure.

The API server does the same to each object that it reads or converts.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from libs.common.crd.build import build_object_schema
from libs.common.crd.definition import CustomResource
from libs.common.kinds import Manifest

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def normalize(model: type[CustomResource], manifest: Mapping[str, Any]) -> Manifest:
    """Return a copy of an object without unknown fields, and with the defaults of its model.

    The metadata is copied as it is.
    """
    schema = _schema_of(model)
    found: Manifest = _normalize(schema, {**manifest, "metadata": {}})
    found["metadata"] = copy.deepcopy(manifest.get("metadata") or {})
    return found


@cache
def _schema_of(model: type[CustomResource]) -> Manifest:
    return build_object_schema(model).schema


def _normalize(schema: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, list):
        items = schema.get("items")
        return [_normalize(items, item) if items else copy.deepcopy(item) for item in value]
    if not isinstance(value, dict):
        return value
    properties: Mapping[str, Any] = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    found: Manifest = {}
    for name, child in value.items():
        if name in properties:
            found[name] = _normalize(properties[name], child)
        elif isinstance(rest, Mapping):
            found[name] = _normalize(rest, child)
        elif rest or schema.get(_PRESERVE):
            found[name] = copy.deepcopy(child)
    for name, child_schema in properties.items():
        if name not in found and "default" in child_schema:
            found[name] = _normalize(child_schema, copy.deepcopy(child_schema["default"]))
    return found
