"""Render the schema of a chart's values, and the table that describes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic.alias_generators import to_camel

from libs.common.kinds import Manifest
from libs.common.settings import SettingSpec
from tools.generate.chart_values import ChartValues
from tools.generate.settings import chart_settings, describe_setting, render_default
from tools.generate.sources import OperatorSource
from tools.generate.text import render_code, render_json, render_table

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_DROPPED: Final = frozenset({"title", "default", "description", "environment", "unit"})


def render_values_schema(operator: OperatorSource) -> dict[Path, str]:
    """Render `values.schema.json`, which helm checks at each install and upgrade."""
    schema = build_values_schema(operator)
    source = f"{operator.path_of('settings.py')} and tools/generate/chart_values.py"
    path = Path("helm", operator.id, "values.schema.json")
    return {path: render_json(schema, source=source)}


def build_values_schema(operator: OperatorSource) -> Manifest:
    """Build the JSON schema of the values: those of every chart, and the settings."""
    schema = _inline(ChartValues.model_json_schema(by_alias=True))
    properties = schema["properties"]
    properties["settings"] = {
        "type": "object",
        "description": "settings are those of the operator; null means its own default.",
        "additionalProperties": False,
        "properties": dict(_setting_schemas(operator)),
    }
    # Helm puts these beside the values of a chart that has a library.
    for name in ("global", "operator-common"):
        properties[name] = {"type": "object"}
    return {"$schema": _DRAFT, **schema}


def render_values_table(operator: OperatorSource, root: Path) -> str:
    """Render the table of the chart's README: every value with its default and sentence."""
    path = root / "helm" / operator.id / "values.yaml"
    defaults = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    schema = _inline(ChartValues.model_json_schema(by_alias=True))
    rows = list(_walk_values(schema, (), defaults))
    rows += [
        (render_code(f"settings.{to_camel(spec.name)}"), render_default(spec), _sentence(spec))
        for spec in chart_settings(operator)
    ]
    return render_table(("Value", "Default", "Description"), rows)


def _sentence(spec: SettingSpec) -> str:
    return describe_setting(spec) + "."


def _walk_values(
    schema: Manifest, path: tuple[str, ...], defaults: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    for name, field in schema["properties"].items():
        place = (*path, name)
        value = defaults.get(name, field.get("default"))
        if "properties" in field:
            yield from _walk_values(field, place, value if isinstance(value, dict) else {})
        else:
            default = render_code(json.dumps(value))
            yield render_code(".".join(place)), default, field.get("description", "")


def _setting_schemas(operator: OperatorSource) -> Iterator[tuple[str, Manifest]]:
    raw = _inline(operator.settings.model_json_schema())["properties"]
    for spec in chart_settings(operator):
        field = {name: value for name, value in raw[spec.name].items() if name not in _DROPPED}
        yield to_camel(spec.name), {
            "description": f"{describe_setting(spec)} (default {render_default(spec)}).",
            **_allow_null(field),
        }


def _allow_null(field: Manifest) -> Manifest:
    """Let a value be null, which means the operator's own default."""
    match field.get("type"):
        case "array":
            # Comma lists may also be written as the text that they become.
            return {"type": ["array", "string", "null"], "items": {"type": "string"}}
        case str() as kind:
            nullable = {**field, "type": [kind, "null"]}
            if "enum" in nullable:
                nullable["enum"] = [*nullable["enum"], None]
            return nullable
        case _:
            return {"anyOf": [field, {"type": "null"}]}


def _inline(schema: Manifest) -> Manifest:
    """Inline references and drop titles, so that readers see one tree."""
    definitions = schema.get("$defs", {})

    def resolve(node: Any, *, in_properties: bool = False) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node and not in_properties:
            target = definitions[str(node["$ref"]).removeprefix("#/$defs/")]
            node = {**target, **{name: node[name] for name in node if name != "$ref"}}
        return {
            name: resolve(value, in_properties=name == "properties")
            for name, value in node.items()
            if in_properties or name not in ("title", "$defs")
        }

    inlined: Manifest = resolve(schema)
    return inlined
