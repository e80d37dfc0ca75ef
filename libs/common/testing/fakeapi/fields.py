"""Sets of field paths, the currency of server-side apply.

A path is a tuple of elements in the notation of `managedFields`: `f:spec`, `k:{"name":"web"}`,
`v:"finalizer"`. Sets of paths are plain Python sets, so union and difference read as such. The
rules come from structured-merge-diff, which the real API server uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.schema import FREE, Schema

type Path = tuple[str, ...]
type Fields = set[Path]


def item_element(item: Any, schema: Schema) -> str:
    """Return the path element that identifies an item of a `map` or `set` list."""
    if schema.list_type == "set":
        return f"v:{orjson.dumps(item).decode()}"
    keys = {}
    for name in schema.list_keys:
        value = item.get(name) if isinstance(item, dict) else None
        if value is None:
            declared = schema.items.field(name)
            value = declared.default if declared is not None and declared.has_default else None
        if value is not None:
            keys[name] = value
    return f"k:{orjson.dumps(keys).decode()}"


def is_leaf(value: Any, schema: Schema) -> bool:
    """Return whether a value belongs to one manager as a whole."""
    if isinstance(value, dict):
        return schema.atomic_map or not value
    if isinstance(value, list):
        return schema.list_type not in ("map", "set") or not value
    return True


def fields_of(value: Manifest, schema: Schema) -> Fields:
    """Return the fields that an applied configuration claims."""
    out: Fields = set()
    _collect(value, schema, (), out)
    return out


def _collect(value: Any, schema: Schema, path: Path, out: Fields) -> None:
    if isinstance(value, dict) and not schema.atomic_map:
        for name, child in value.items():
            declared = schema.field(name) or FREE
            below = (*path, f"f:{name}")
            _collect(child, declared, below, out)
            if child is None or child == {} or not schema.declares(name):
                out.add(below)
    elif isinstance(value, list) and schema.list_type in ("map", "set"):
        for item in value:
            below = (*path, item_element(item, schema))
            _collect(item, schema.items, below, out)
            out.add(below)
    elif path:
        out.add(path)


@dataclass(slots=True)
class Comparison:
    """The fields in which two objects differ."""

    added: Fields = field(default_factory=set)
    modified: Fields = field(default_factory=set)
    removed: Fields = field(default_factory=set)

    @property
    def written(self) -> Fields:
        """Fields that the new object set to something else."""
        return self.added | self.modified


_MISSING: Any = object()


def compare(old: Manifest, new: Manifest, schema: Schema) -> Comparison:
    """Compare two objects field by field."""
    out = Comparison()
    # A null here is a time without a value: nobody set it.
    old, new = (
        {name: value for name, value in obj.items() if value is not None} for obj in (old, new)
    )
    _compare(old, new, schema, (), out)
    return out


def _compare(old: Any, new: Any, schema: Schema, path: Path, out: Comparison) -> None:
    if old is new or (old is not _MISSING and new is not _MISSING and old == new):
        return
    present = new if old is _MISSING or old is None else old
    whole = all(side is _MISSING or is_leaf(side, schema) for side in (old, new))
    if whole or not _same_shape(old, new):
        _compare_leaf(old, new, path, out)
        return
    for element, before, after, below in _pairs(old, new, present, schema):
        _compare(before, after, below, (*path, element), out)
    if path and old is _MISSING:
        out.added.add(path)
    elif path and new is _MISSING:
        out.removed.add(path)


def _compare_leaf(old: Any, new: Any, path: Path, out: Comparison) -> None:
    if old is _MISSING:
        out.added.add(path)
    elif new is _MISSING:
        out.removed.add(path)
    else:
        out.modified.add(path)


def _same_shape(old: Any, new: Any) -> bool:
    vague = (_MISSING, None)
    return any(side is v for side in (old, new) for v in vague) or type(old) is type(new)


def _pairs(
    old: Any, new: Any, present: Any, schema: Schema
) -> Iterable[tuple[str, Any, Any, Schema]]:
    if isinstance(present, dict):
        before, after = (side if isinstance(side, dict) else {} for side in (old, new))
        for name in {**before, **after}:
            below = schema.field(name) or FREE
            absent = _absent(name, below, schema)
            yield (
                f"f:{name}",
                before.get(name, _MISSING if old is _MISSING else absent),
                after.get(name, _MISSING if new is _MISSING else absent),
                below,
            )
        return
    olds, news = (
        {item_element(item, schema): item for item in (side if isinstance(side, list) else ())}
        for side in (old, new)
    )
    for element in {**olds, **news}:
        yield element, olds.get(element, _MISSING), news.get(element, _MISSING), schema.items


def _absent(name: str, schema: Schema, holder: Schema) -> Any:
    """Return what an unset field of a built-in type looks like.

    Structs held by value and required lists are there whenever their holder is, empty or null.
    """
    if schema.name and schema.default == {}:
        return {}
    if holder.name and schema.type == "array" and name in holder.raw.get("required", ()):
        return None
    return _MISSING


def with_named_parents(fields: Fields, schema: Schema) -> Fields:
    """Add the declared fields that have members below them, as removal treats them as owned."""
    out = set(fields)
    for path in fields:
        for length in range(len(path) - 1, 0, -1):
            parent = path[:length]
            if parent in out:
                continue
            if parent[-1].startswith("f:") and _declared(parent, schema):
                out.add(parent)
    return out


def _declared(path: Path, schema: Schema) -> bool:
    holder = schema_at(path[:-1], schema)
    return holder.declares(path[-1][2:])


def schema_at(path: Path, schema: Schema) -> Schema:
    """Return the schema at a path."""
    for element in path:
        below = schema.field(element[2:]) if element.startswith("f:") else schema.items
        schema = below or FREE
    return schema


def remove_fields(value: Any, doomed: Fields, schema: Schema) -> Any:
    """Return the value without the fields of a set; what is below a removed field goes with it."""
    return _remove(value, encode_fields(doomed), schema) if doomed else value


def _remove(value: Any, tree: Manifest, schema: Schema) -> Any:
    if isinstance(value, dict):
        out = {}
        for name, child in value.items():
            below = tree.get(f"f:{name}")
            if below is not None and (not below or "." in below):
                continue
            out[name] = (
                child if below is None else _remove(child, below, schema.field(name) or FREE)
            )
        return out
    if isinstance(value, list) and schema.list_type in ("map", "set"):
        kept = []
        for item in value:
            below = tree.get(item_element(item, schema))
            if below is not None and (not below or "." in below):
                continue
            kept.append(item if below is None else _remove(item, below, schema.items))
        return kept
    return value


def encode_fields(fields: Fields) -> Manifest:
    """Encode a set as `fieldsV1`: a tree in which `.` marks that a parent is itself a member."""
    tree: Manifest = {}
    for path in sorted(fields):
        node = tree
        for depth, element in enumerate(path):
            if element not in node:
                if depth and path[:depth] in fields:
                    node.setdefault(".", {})
                node[element] = {}
            node = node[element]
    return tree


def decode_fields(tree: Manifest) -> Fields:
    """Decode `fieldsV1` into a set of paths."""
    out: Fields = set()
    _decode(tree, (), out)
    return out


def _decode(tree: Manifest, path: Path, out: Fields) -> None:
    if path and (not tree or "." in tree):
        out.add(path)
    for element, below in tree.items():
        if element != ".":
            _decode(below, (*path, element), out)


def render_path(path: Path) -> str:
    """Render a path as conflict messages do: `.spec.containers[name="web"].image`."""
    out = ""
    for element in path:
        kind, _, text = element.partition(":")
        if kind == "f":
            out += f".{text}"
        elif kind == "k":
            keys = orjson.loads(text)
            inner = ",".join(f"{k}={orjson.dumps(v).decode()}" for k, v in keys.items())
            out += f"[{inner}]"
        else:
            out += f"[={text}]"
    return out
