"""Who owns which field: `metadata.managedFields`, kept as the real API server keeps them.

The algorithm comes from structured-merge-diff: an update takes what it changes away from all
others; an apply takes what it names, conflicts with others that own a different value, and drops
what it named before and names no longer, unless somebody else owns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.fields import (
    Fields,
    Path,
    compare,
    decode_fields,
    encode_fields,
    fields_of,
    item_element,
    remove_fields,
    render_path,
    with_named_parents,
)
from libs.common.testing.fakeapi.schema import FREE, Schema
from libs.common.testing.fakeapi.statuses import StatusError

_SYSTEM = frozenset(
    ("f:metadata", f"f:{name}")
    for name in (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
) | {("f:apiVersion",), ("f:kind",), ("f:metadata",)}


@dataclass(frozen=True, slots=True)
class ManagerId:
    """The identity of one entry of `managedFields`."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def slot(self) -> tuple[str, str, str, str]:
        """What makes entries distinct: an applier is the same in every API version."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.name, self.operation, version, self.subresource)


@dataclass(slots=True)
class Ownership:
    """The fields of one manager, and the time of their last change."""

    manager: ManagerId
    fields: Fields
    time: str


class Managers:
    """The decoded `managedFields` of one object."""

    def __init__(self, entries: Sequence[Mapping[str, Any]] = ()) -> None:
        """Decode the entries of an object."""
        self._entries: dict[tuple[str, str, str, str], Ownership] = {}
        for entry in entries:
            manager = ManagerId(
                entry.get("manager", ""),
                entry.get("operation", "Update"),
                entry.get("apiVersion", ""),
                entry.get("subresource", ""),
            )
            fields = decode_fields(entry.get("fieldsV1") or {})
            self._entries[manager.slot] = Ownership(manager, fields, entry.get("time", ""))

    def __bool__(self) -> bool:
        """Return whether anybody owns anything."""
        return bool(self._entries)

    def encode(self) -> list[Manifest]:
        """Encode as `managedFields`: appliers first, then by time."""
        owned = sorted(
            self._entries.values(),
            key=lambda o: (o.manager.operation, o.time, o.manager.name, o.manager.subresource),
        )
        return [_encode(ownership) for ownership in owned]

    def update(
        self,
        old: Manifest,
        new: Manifest,
        schema: Schema,
        manager: ManagerId,
        *,
        now: str,
        ignored: tuple[Fields, Fields] = (set(), set()),
        owned_only: bool = False,
    ) -> None:
        """Record a write that is no apply: what it changed is now the manager's.

        With `owned_only` fields that nobody owned stay so.
        """
        changes = compare(old, new, schema)
        removed = changes.removed - _SYSTEM
        written = _without(changes.written - _SYSTEM, ignored)
        if owned_only:
            written = {p for p in written if any(p in o.fields for o in self._entries.values())}
        for ownership in self._entries.values():
            ownership.fields -= written
            ownership.fields -= removed
        if written:
            previous = self._entries.get(manager.slot)
            fields = written | (previous.fields if previous else set())
            self._entries[manager.slot] = Ownership(manager, fields, now)
        self._drop_empty()

    def apply(
        self,
        live: Manifest,
        config: Manifest,
        schema: Schema,
        manager: ManagerId,
        *,
        force: bool,
        now: str,
        ignored: tuple[Fields, Fields] = (set(), set()),
    ) -> Manifest:
        """Merge a configuration into the live object and record what it claims.

        Raises:
            StatusError: Another manager owns a different value (409), and force is not set.
        """
        last = self._entries.get(manager.slot)
        last_fields = set(last.fields) if last else set()
        claimed = _without(fields_of(config, schema) - _SYSTEM, ignored)
        merged = merge(live, config, schema)
        # As on the real server, an apply that changes nothing leaves the time as it is or absent.
        self._entries[manager.slot] = Ownership(manager, claimed, last.time if last else "")
        merged = self._prune(merged, last_fields, schema)
        changes = compare(live, merged, schema)
        self._settle(manager, changes.written - _SYSTEM, changes.removed, force=force)
        if merged != live:
            self._entries[manager.slot].time = now
        self._drop_empty()
        return merged

    def _prune(self, merged: Manifest, last: Fields, schema: Schema) -> Manifest:
        owned: Fields = set()
        for ownership in self._entries.values():
            owned |= ownership.fields
        doomed = with_named_parents(last, schema) - with_named_parents(owned, schema) - _SYSTEM
        pruned: Manifest = remove_fields(merged, doomed, schema)
        return pruned

    def _settle(self, manager: ManagerId, written: Fields, removed: Fields, *, force: bool) -> None:
        others = [o for slot, o in self._entries.items() if slot != manager.slot]
        conflicts = [(o.manager, o.fields & written) for o in others if o.fields & written]
        if conflicts and not force:
            raise apply_conflict(conflicts)
        for ownership in others:
            ownership.fields -= written
            ownership.fields -= removed

    def _drop_empty(self) -> None:
        self._entries = {slot: o for slot, o in self._entries.items() if o.fields}


def _without(fields: Fields, ignored: tuple[Fields, Fields]) -> Fields:
    """Drop ignored subtrees, but keep what lies in the exceptions."""
    dropped, kept = ignored
    if not dropped:
        return fields
    return {
        path
        for path in fields
        if not any(path[: len(d)] == d for d in dropped) or any(path[: len(k)] == k for k in kept)
    }


def _encode(ownership: Ownership) -> Manifest:
    manager = ownership.manager
    entry: Manifest = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        **({"time": ownership.time} if ownership.time else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": encode_fields(ownership.fields),
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def apply_conflict(conflicts: Sequence[tuple[ManagerId, Fields]]) -> StatusError:
    """Build the 409 of an apply that meets other owners, one cause a field."""
    causes: list[Manifest] = []
    lines: dict[str, list[str]] = {}
    for manager, fields in sorted(conflicts, key=lambda c: c[0].name):
        who = _describe(manager)
        for path in sorted(fields, key=_members_first):
            text = render_path(path)
            causes.append(
                {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": text}
            )
            lines.setdefault(who, []).append(text)
    total = len(causes)
    if total == 1:
        listed = f"conflict with {next(iter(lines))}: {causes[0]['field']}"
    else:
        listed = "\n".join(
            f"conflicts with {who}:\n" + "\n".join(f"- {path}" for path in paths)
            for who, paths in lines.items()
        )
    plural = "" if total == 1 else "s"
    return StatusError(
        409,
        "Conflict",
        f"Apply failed with {total} conflict{plural}: {listed}",
        details={"causes": causes},
    )


def _members_first(path: Path) -> list[tuple[bool, str]]:
    """Order paths as the real server does: on each level what ends there comes first."""
    return [(depth < len(path), element) for depth, element in enumerate(path, 1)]


def _describe(manager: ManagerId) -> str:
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        text += f" using {manager.api_version}"
    return text


def merge(live: Any, config: Any, schema: Schema) -> Any:
    """Merge an applied value over a live one: maps by key, `map` and `set` lists by item."""
    if isinstance(live, dict) and isinstance(config, dict) and not schema.atomic_map:
        out = dict(live)
        for name, value in config.items():
            declared = schema.field(name) or FREE
            out[name] = merge(live[name], value, declared) if name in live else value
        return out
    if isinstance(live, list) and isinstance(config, list) and schema.list_type in ("map", "set"):
        return _merge_lists(live, config, schema)
    return config


def _merge_lists(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    """Merge two lists in the order of the configuration; live-only items keep their place."""
    wanted = {item_element(item, schema): item for item in config}
    present = {item_element(item, schema): item for item in live}
    out: list[Any] = []
    done: set[str] = set()
    queue = list(wanted)
    for element, item in present.items():
        if element not in wanted:
            out.append(item)
            continue
        if element in done:
            continue
        # Configured items that come before this one in the configuration are put first.
        while queue:
            head = queue.pop(0)
            done.add(head)
            known = head in present
            out.append(merge(present[head], wanted[head], schema.items) if known else wanted[head])
            if head == element:
                break
    out.extend(wanted[element] for element in queue)
    return out


def is_same(old: Manifest, new: Manifest) -> bool:
    """Return whether a write changes nothing but the times at which managers wrote."""
    if {**old, "metadata": None} != {**new, "metadata": None}:
        return False
    before, after = (_timeless(obj["metadata"]) for obj in (old, new))
    return before == after


def _timeless(metadata: Manifest) -> Manifest:
    entries = metadata.get("managedFields") or ()
    managed = [{k: v for k, v in entry.items() if k != "time"} for entry in entries]
    return {**metadata, "managedFields": managed}
