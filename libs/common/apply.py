"""Compare desired with live state: what to send, and when to send nothing.

The API server fills in defaults, so a live object is never equal to what was sent. A live object
matches the desired state if it contains every desired field (`shows`), if the hash of the state
that was sent last (annotation `slipway.dev/applied-hash`) equals the hash of the desired state, and
if no other client has replaced an atomic map or list, such as the selector of a Service. The hash
detects fields that are no longer desired; server-side apply then prunes them. Whether a map is
atomic is written in no object, but only such a map or list has one owner in `managedFields`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from libs.common.kinds import Manifest
from libs.common.labels import APPLIED_HASH
from libs.common.quantity import same_quantity
from libs.common.reading import map_at, maps_at, text_at

_SERVER_SET: Final = ("managedFields", "resourceVersion", "generation", "creationTimestamp")
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "capacity", "hard", "overhead"})
"""Fields whose values are quantities, which the server writes in its own canonical form."""
_MERGE_KEYS: Final = ("name", "uid", "type", "containerPort", "port", "key", "ip", "mountPath")
"""Fields that identify the items of a list, in the order in which they are tried."""


def build_desired(manifest: Mapping[str, Any]) -> Manifest:
    """Build the manifest to send: without fields that only the server sets, and with its hash."""
    metadata = {
        name: value for name, value in manifest["metadata"].items() if name not in _SERVER_SET
    }
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name != APPLIED_HASH
    }
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    desired = {name: value for name, value in manifest.items() if name != "status"}
    desired["metadata"] = metadata
    annotations = {**annotations, APPLIED_HASH: desired_hash(desired)}
    return {**desired, "metadata": {**metadata, "annotations": annotations}}


def desired_hash(desired: Mapping[str, Any]) -> str:
    """Return a hash of a desired state that does not depend on the order of keys."""
    return hashlib.sha256(orjson.dumps(desired, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def is_applied(live: Mapping[str, Any], desired: Mapping[str, Any], manager: str) -> bool:
    """Return whether a live object needs no apply.

    Args:
        live: Object as the server has it, or as it is cached.
        desired: Result of `build_desired`.
        manager: Field manager that applies.
    """
    annotations = live["metadata"].get("annotations") or {}
    wanted = desired["metadata"]["annotations"]
    same = annotations.get(APPLIED_HASH) == wanted[APPLIED_HASH]
    return same and not find_changed(live, desired, manager)


def find_changed(live: Mapping[str, Any], desired: Mapping[str, Any], manager: str) -> list[str]:
    """Return the paths that differ from the desired state, or that another client has replaced."""
    return find_drift(live, desired) or find_replaced(live, desired, manager)


def find_replaced(live: Mapping[str, Any], desired: Mapping[str, Any], manager: str) -> list[str]:
    """Return the paths of desired maps and lists that another manager owns as a whole."""
    entries = _entries_of(live)
    ours = [each["fieldsV1"] for each in entries if each["manager"] == manager]
    return [
        path
        for each in entries
        if each["manager"] != manager
        for path in _find_replaced(each["fieldsV1"], ours, live, desired)
    ]


def _find_replaced(
    theirs: Mapping[str, Any],
    ours: Sequence[Mapping[str, Any]],
    live: object,
    desired: object,
    path: str = "",
) -> Iterator[str]:
    for name, below in theirs.items():
        held, wanted = _enter(live, name), _enter(desired, name)
        if not held or wanted is None or not isinstance(below, Mapping):
            continue
        mine = [map_at(each, name) for each in ours if name in each]
        where = f"{path}.{name.partition(':')[2]}".lstrip(".")
        if below:
            yield from _find_replaced(below, mine, held, wanted, where)
        elif not mine and isinstance(held, Mapping | list):
            yield where


def keep_rivals(manifest: Manifest) -> list[Manifest]:
    """Return the part of `managedFields` that `find_replaced` needs: mostly nothing."""
    if APPLIED_HASH not in (manifest["metadata"].get("annotations") or ()):
        return []
    mark, entries = f"f:{APPLIED_HASH}", _entries_of(manifest)
    appliers = {
        each["manager"]
        for each in entries
        if mark in map_at(each, "fieldsV1", "f:metadata", "f:annotations")
    }
    lost = any(find_replaced(manifest, manifest, each) for each in appliers or {""})
    return entries if lost else []


def _entries_of(manifest: Mapping[str, Any]) -> list[Manifest]:
    """Return managers and fields of the object itself, without those of subresources."""
    return [
        {"manager": text_at(each, "manager"), "fieldsV1": map_at(each, "fieldsV1")}
        for each in maps_at(manifest, "metadata", "managedFields")
        if not each.get("subresource")
    ]


def _enter(value: object, name: str) -> object:
    """Return the part of a value that an element of `fieldsV1` names, or None."""
    sort, _, rest = name.partition(":")
    if sort == "f" and isinstance(value, Mapping):
        return value.get(rest)
    if sort == "k" and isinstance(value, list):
        try:
            keys = dict(orjson.loads(rest))
        except (TypeError, ValueError):
            return None
        # A key with a default, such as `protocol`, may be missing in the desired state.
        items = (each for each in value if isinstance(each, Mapping))
        return next((i for i in items if all(i.get(k, v) == v for k, v in keys.items())), None)
    return None


def shows(live: object, desired: object) -> bool:
    """Return whether a live object contains every desired field; it may contain more.

    Empty and absent values are equal, because the server drops empty values, and an empty map
    requires nothing. Lists of named items are compared by name, other lists item by item.
    Quantities are compared as numbers.
    """
    return not find_drift(live, desired)


def find_drift(live: object, desired: object, path: str = "") -> list[str]:
    """Return the paths at which the live object differs from the desired state."""
    if _is_empty(desired):
        # An empty map requires a map with any content; other empty values replace the existing
        # value.
        asks_nothing = isinstance(desired, Mapping) and isinstance(live, Mapping)
        return [] if desired is None or _is_empty(live) or asks_nothing else [path]
    if isinstance(desired, Mapping):
        if not isinstance(live, Mapping):
            return [path]
        return _map_drift(live, desired, path)
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        if not isinstance(live, Sequence) or isinstance(live, str):
            return [path]
        return _list_drift(live, desired, path)
    # In Python, True is 1.
    same = live == desired and isinstance(live, bool) == isinstance(desired, bool)
    return [] if same else [path]


def _map_drift(live: Mapping[str, object], desired: Mapping[str, object], path: str) -> list[str]:
    quantities = path.rpartition(".")[2] in _QUANTITY_MAPS
    drift: list[str] = []
    for name, value in desired.items():
        below = f"{path}.{name}" if path else name
        held = live.get(name)
        if quantities and _same_amount(held, value):
            continue
        drift.extend(find_drift(held, value, below))
    return drift


def _list_drift(live: Sequence[object], desired: Sequence[object], path: str) -> list[str]:
    if len(live) != len(desired):
        return [path]
    key = _merge_key(desired)
    if key is None:
        pairs = zip(live, desired, strict=True)
        return [
            found
            for index, (held, value) in enumerate(pairs)
            for found in find_drift(held, value, f"{path}[{index}]")
        ]
    by_key = {item.get(key): item for item in live if isinstance(item, Mapping)}
    return [
        found
        for item in desired
        if isinstance(item, Mapping)
        for found in find_drift(by_key.get(item[key]), item, f"{path}[{item[key]}]")
    ]


def _merge_key(items: Sequence[object]) -> str | None:
    """Return the field that identifies the items of a list, or None."""
    maps = [item for item in items if isinstance(item, Mapping)]
    if len(maps) != len(items):
        return None
    for name in _MERGE_KEYS:
        values = [item.get(name) for item in maps]
        if all(isinstance(value, str | int) for value in values) and len(set(values)) == len(maps):
            return name
    return None


def _same_amount(held: object, value: object) -> bool:
    if not isinstance(held, str | int) or not isinstance(value, str | int):
        return False
    try:
        return same_quantity(held, value)
    except ValueError:
        return False


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {})
