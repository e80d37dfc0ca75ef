"""Render the schema of a chart's values, and the table that describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic.alias_generators import to_camel

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.project.chart_values import OTHER_NAMES, ChartValues
from libs.common.project.errors import GenerateError
from libs.common.project.settings import (
    BEGIN,
    END,
    chart_settings,
    describe_setting,
    render_default,
    render_values_block,
)
from libs.common.project.sources import OperatorSource
from libs.common.project.text import (
    render_code,
    render_json,
    render_notice,
    render_table,
    replace_lines,
)
from libs.common.settings import SettingSpec

COMMON_VALUES: Final = Path("files", "values.yaml")
"""The values of every chart, with their defaults and comments, in the library chart."""
_COMMON: Final = "helm/operator-common/files/values.yaml"
_SCHEMA: Final = "libs/common/project/chart_values.py"
_OPERATOR: Final = "OPERATOR"
"""Placeholder for the id of the operator in these values."""
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_NOISE: Final = frozenset({"title", "$defs", "required", "description"})
_NOT_OURS: Final = frozenset({"title", "default", "description", "environment", "unit"})
_TABLE: Final = ("Value", "Default", "Description")
_KEY: Final = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z][A-Za-z0-9]*):(?P<rest>.*)$")

_ENABLED: Final = (
    "For the condition of a chart that has this one among its dependencies; unused here."
)

type KeyPath = tuple[str, ...]


def render_values_schema(operator: OperatorSource, library: Path) -> dict[Path, str]:
    """Render `values.schema.json`, against which Helm validates values at each install and upgrade.

    Raises:
        GenerateError: values.yaml has keys that the schema lacks, or the reverse.
    """
    origin = operator.origin(operator.path_of("settings"), _SCHEMA)
    schema = build_values_schema([operator], read_values(operator, library))
    return {operator.chart / "values.schema.json": render_json(schema, origin=origin)}


def build_values_schema(operators: Sequence[OperatorSource], values: str = "") -> Manifest:
    """Build the JSON schema of the values: common values and the settings of all given operators.

    Args:
        operators: Operators whose charts have this schema. The templates refuse settings that
            only another operator has.
        values: Text of values.yaml, whose comments become descriptions; empty for none.

    Raises:
        GenerateError: values.yaml has keys that the schema lacks, or the reverse, or two operators
            have different settings of one name.
    """
    schema = _build_common_schema()
    if values:
        _check_keys(schema, fastyaml.load(values))
        _describe(schema, (), read_comments(values))
    properties = schema["properties"]
    properties["settings"] = {
        "description": "The settings of the operator; null means its own default.",
        "type": "object",
        "additionalProperties": False,
        "properties": _join_settings(operators),
    }
    # Helm adds the values of the library chart.
    properties["operator-common"] = {"type": "object"}
    properties["enabled"] = {"description": _ENABLED, "type": "boolean"}
    _require_parts(schema)
    _refuse_other_names(schema)
    return {"$schema": _DRAFT, **schema}


def render_values(operator: OperatorSource, library: Path) -> str:
    """Render values.yaml of the chart: common values, the image and the settings."""
    text = (library / COMMON_VALUES).read_text(encoding="utf-8")
    if operator.all_namespaces:
        text = text.replace("  clusterWide: false\n", "  clusterWide: true\n")
    text = replace_lines(text, BEGIN, END, render_values_block(operator), path=_COMMON)
    notice = render_notice(operator.origin(operator.path_of("settings"), _COMMON))
    return notice + text.replace(_OPERATOR, operator.id)


def render_values_table(operator: OperatorSource, library: Path) -> str:
    """Render a table of every value of a chart except the settings."""
    text = read_values(operator, library)
    comments = read_comments(text)
    rows = [
        (render_code(".".join(path)), default, comments.get(path, ""))
        for path, default in _walk_values(_build_common_schema(), (), fastyaml.load(text) or {})
        if default or path in comments
    ]
    return render_table(_TABLE, rows)


def render_settings_values(operator: OperatorSource, specs: Iterable[SettingSpec]) -> str:
    """Render a table of settings as values of a chart."""
    rows = [
        (
            render_code(f"settings.{to_camel(spec.name)}"),
            render_default(spec),
            f"{describe_setting(operator, spec)}.",
        )
        for spec in specs
    ]
    return render_table(_TABLE, rows)


def read_comments(text: str) -> dict[KeyPath, str]:
    """Read the comment above each key of a YAML file in block style, by path."""
    comments: dict[KeyPath, str] = {}
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            lines.append(line.strip().lstrip("#").strip())
        elif (match := _KEY.match(line)) is not None:
            indent = len(match["indent"])
            path = [*(part for part in path if part[0] < indent), (indent, match["name"])]
            if lines:
                comments[tuple(name for _, name in path)] = " ".join(lines)
            lines = []
        else:
            lines = []
    return comments


def read_values(operator: OperatorSource, library: Path) -> str:
    """Render values.yaml of the chart, or nothing if there is no library chart."""
    return render_values(operator, library) if (library / COMMON_VALUES).is_file() else ""


def _build_common_schema() -> Manifest:
    return _simplify(ChartValues.model_json_schema(by_alias=True))


def _walk_values(schema: Manifest, path: KeyPath, values: Any) -> Iterator[tuple[KeyPath, str]]:
    """Yield each value with its default; a group of values, which comes first, has none."""
    for name, field in schema["properties"].items():
        value = values.get(name) if isinstance(values, Mapping) else None
        if "properties" in field:
            yield (*path, name), ""
            yield from _walk_values(field, (*path, name), value)
        else:
            yield (*path, name), render_code(json.dumps(value))


def _check_keys(schema: Manifest, values: Manifest) -> None:
    problems = [
        f"{_COMMON}: {'.'.join(path)}: {problem}"
        for path, problem in _compare_keys(schema, values, ())
        if path != ("settings",)
    ]
    if problems:
        raise GenerateError(problems)


def _compare_keys(schema: Manifest, values: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    known = schema["properties"]
    found = values if isinstance(values, Mapping) else {}
    for name in known.keys() - found.keys():
        yield (*path, name), f"needs a default, since {_SCHEMA} has it"
    for name in found.keys() - known.keys():
        yield (*path, name), f"is not known to {_SCHEMA}"
    for name in known.keys() & found.keys():
        if "properties" in known[name]:
            yield from _compare_keys(known[name], found[name], (*path, name))


def _describe(schema: Manifest, path: KeyPath, comments: Mapping[KeyPath, str]) -> None:
    for name, field in schema["properties"].items():
        place = (*path, name)
        if text := comments.get(place):
            # Editors show the description first, so it comes first.
            schema["properties"][name] = field = {"description": text, **field}
        if "properties" in field:
            _describe(field, place, comments)


def _require_parts(schema: Manifest) -> None:
    """Require every map of values: null would remove the map, and templates would fail.

    Each setting is null by default, so all of them can be null.
    """
    parts = [name for name, field in schema["properties"].items() if "properties" in field]
    if required := [name for name in parts if name != "settings"]:
        schema["required"] = required
    for name in parts:
        _require_parts(schema["properties"][name])


def _refuse_other_names(schema: Manifest) -> None:
    """Refuse names of values of other charts; a constant is the only text that Helm prints."""
    for name, ours in OTHER_NAMES.items():
        *parents, last = name.split(".")
        part = schema
        for parent in parents:
            part = part["properties"][parent]
        # Not in `properties`, so that tables and editors do not offer the name.
        refused = {"const": f"removed; this chart calls it {ours}"}
        part.setdefault("patternProperties", {})[f"^{last}$"] = refused


def _join_settings(operators: Sequence[OperatorSource]) -> dict[str, Manifest]:
    joined: dict[str, Manifest] = {}
    for operator in operators:
        for name, schema in _setting_schemas(operator):
            known = joined.setdefault(name, schema)
            if {**known, "description": ""} != {**schema, "description": ""}:
                problem = "another operator has a setting of this name with other values: rename it"
                raise GenerateError([f"{operator.id}: settings.{name}: {problem}"])
    return joined


def _setting_schemas(operator: OperatorSource) -> Iterator[tuple[str, Manifest]]:
    raw = _simplify(operator.settings.model_json_schema())["properties"]
    for spec in chart_settings(operator):
        field = {name: value for name, value in raw[spec.name].items() if name not in _NOT_OURS}
        description = f"{describe_setting(operator, spec)} (default {render_default(spec)})."
        yield to_camel(spec.name), {"description": description, **_allow_null(field)}


def _allow_null(field: Manifest) -> Manifest:
    """Allow null, which means the operator's own default."""
    match field.get("type"):
        case "array":
            # Comma-separated lists can be written as text as well.
            return {"type": ["array", "string", "null"], "items": {"type": "string"}}
        case str() as kind:
            nullable = {**field, "type": [kind, "null"]}
            if "enum" in nullable:
                nullable["enum"] = [*nullable["enum"], None]
            return nullable
        case _:
            return {"anyOf": [field, {"type": "null"}]}


def _simplify(schema: Manifest) -> Manifest:
    """Inline references, and drop keywords that do not help users of a chart.

    No value is required: defaults come from values.yaml, and null removes a key before Helm
    validates the values.
    """
    definitions = schema.get("$defs", {})

    def resolve(node: Any, *, named: bool = False) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node and not named:
            target = definitions[str(node["$ref"]).removeprefix("#/$defs/")]
            node = {**target, **{name: node[name] for name in node if name != "$ref"}}
        kept = {
            name: resolve(value, named=name == "properties")
            for name, value in node.items()
            if named or name not in _NOISE
        }
        return kept if named else dict(sorted(kept.items(), key=_by_importance))

    simple: Manifest = resolve(schema)
    return simple


def _by_importance(item: tuple[str, Any]) -> tuple[int, str]:
    """Return the sort key of a keyword: the type first, the fields last."""
    return {"type": 0, "properties": 2}.get(item[0], 1), item[0]
