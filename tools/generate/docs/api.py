"""The API page of an operator: every field with its type, its bounds and its description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from libs.common.crd import CustomResource, build_object_schema
from libs.common.crd.markers import (
    INT_OR_STRING,
    LIST_MAP_KEYS,
    LIST_TYPE,
    PRESERVE_UNKNOWN,
    VALIDATIONS,
)
from libs.common.kinds import Manifest
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_code, render_table

# Descriptions contain the defaults.
_HEAD: Final = ("Field", "Type", "Description")
# Kubernetes says what a condition is; the types and reasons have a page of their own.
_FOLDED: Final = frozenset({"status.conditions"})
_LONG_PATTERN: Final = 60


def render_api(operator: OperatorSource) -> str:
    """Render all kinds and versions of an operator."""
    return "\n\n".join(_render_kind(model) for model in operator.resources)


def render_api_summary(operator: OperatorSource) -> str:
    """Render one table with the fields of each spec, for READMEs."""
    parts = []
    for model in operator.resources:
        schema = build_object_schema(model).schema
        spec = schema["properties"].get("spec", {})
        rows = _render_rows(spec, "spec")
        parts.append(f"### {_render_title(model)}\n\n{render_table(_HEAD, rows)}")
    return "\n\n".join(parts)


def _render_kind(model: type[CustomResource]) -> str:
    schema = build_object_schema(model).schema
    parts = [f"## {_render_title(model)}", schema.get("description", ""), _render_facts(model)]
    for name, field in schema["properties"].items():
        if name in ("apiVersion", "kind", "metadata"):
            continue
        rows = _render_rows(field, name)
        parts += [f"### {name}", field.get("description", ""), render_table(_HEAD, rows)]
    parts.append(_render_rules(schema))
    parts.append(_render_columns(model))
    return "\n\n".join(part for part in parts if part)


def _render_title(model: type[CustomResource]) -> str:
    kind = model.crd_meta.kind
    return f"{kind.kind} {kind.api_version}"


def _render_facts(model: type[CustomResource]) -> str:
    meta = model.crd_meta
    names = ", ".join(render_code(name) for name in (meta.kind.plural, *meta.short_names))
    facts = [f"kubectl names: {names}", "namespaced" if meta.kind.namespaced else "cluster-scoped"]
    if meta.categories:
        facts.append("categories: " + ", ".join(render_code(name) for name in meta.categories))
    if meta.scale:
        facts.append(f"`kubectl scale` sets `{meta.scale.spec_replicas.removeprefix('.')}`")
    if meta.deprecated:
        facts.append(f"**deprecated: {meta.deprecated}**")
    return "; ".join(facts) + "."


def _render_rows(schema: Manifest, path: str) -> Iterator[tuple[str, str, str]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        place = f"{path}.{name}"
        kind = describe_type(field) + (", required" if name in required else "")
        yield render_code(place), kind, field.get("description", "")
        if place in _FOLDED:
            continue
        yield from _render_rows(field, place)
        if "items" in field:
            yield from _render_rows(field["items"], f"{place}[]")
        if isinstance(field.get("additionalProperties"), dict):
            yield from _render_rows(field["additionalProperties"], f"{place}{{}}")


def describe_type(schema: Manifest) -> str:
    """Describe type and bounds of a field in a few words."""
    if INT_OR_STRING in schema:
        return "integer or string"
    if "enum" in schema:
        return " or ".join(render_code(str(value)) for value in schema["enum"])
    match schema.get("type", "any"):
        case "array":
            text = _describe_list(schema)
        case "object":
            text = _describe_object(schema)
        case "integer":
            text = f"integer{_describe_range(schema)}"
        case "string":
            text = _describe_text(schema)
        case other:
            text = str(other)
    return text


def _describe_object(schema: Manifest) -> str:
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map{_describe_size(schema)} of {describe_type(schema['additionalProperties'])}"
    return "object" if "properties" in schema or PRESERVE_UNKNOWN not in schema else "any object"


def _describe_list(schema: Manifest) -> str:
    kind = "set" if schema.get(LIST_TYPE) == "set" else "list"
    keys = ", ".join(schema.get(LIST_MAP_KEYS, ()))
    by = f" by {keys}" if keys else ""
    return f"{kind}{by}{_describe_size(schema)} of {describe_type(schema['items'])}"


def _describe_size(schema: Manifest) -> str:
    low = schema.get("minItems") or schema.get("minProperties")
    high = schema.get("maxItems") or schema.get("maxProperties")
    if high is None:
        return ""
    return f" ({low} to {high})" if low else f" (at most {high})"


def _describe_range(schema: Manifest) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above = "more than " if schema.get("exclusiveMinimum") else ""
    below = "less than " if schema.get("exclusiveMaximum") else ""
    if low is None and high is None:
        return ""
    if low is None:
        return f" ({below or 'at most '}{high})"
    if high is None:
        return f" ({above or 'at least '}{low})"
    return f" ({above}{low} to {below}{high})"


def _describe_text(schema: Manifest) -> str:
    if "format" in schema:
        return f"string ({schema['format']})"
    words = []
    if "maxLength" in schema:
        words.append(f"at most {schema['maxLength']} characters")
    if len(pattern := schema.get("pattern", "")) in range(1, _LONG_PATTERN):
        words.append(render_code(pattern))
    return f"string ({', '.join(words)})" if words else "string"


def _render_rules(schema: Manifest) -> str:
    rows = [
        (render_code(path or "the object"), rule["message"], render_code(rule["rule"]))
        for path, rule in _walk_rules(schema, "")
    ]
    table = render_table(("Where", "What must hold", "CEL"), rows)
    return (
        f"### Rules\n\nThe API server rejects an object that breaks one of these rules.\n\n{table}"
        if rows
        else ""
    )


def _walk_rules(schema: Manifest, path: str) -> Iterator[tuple[str, Manifest]]:
    for rule in schema.get(VALIDATIONS, ()):
        yield path + rule.get("fieldPath", "") if path else rule.get("fieldPath", "")[1:], rule
    for name, field in schema.get("properties", {}).items():
        yield from _walk_rules(field, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from _walk_rules(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _walk_rules(schema["additionalProperties"], f"{path}{{}}")


def _render_columns(model: type[CustomResource]) -> str:
    rows = [
        (
            column.name + (" (`-o wide`)" if column.priority else ""),
            render_code(column.json_path),
            column.description,
        )
        for column in model.crd_meta.columns
    ]
    table = render_table(("Column", "Shows", "Description"), rows)
    return f"### Columns of kubectl get\n\n{table}" if rows else ""
