"""The storage under the fake API: objects, one resource version for all, and a history of changes.

Stored manifests are never changed in place: a write puts a new one. A caller that changes a
manifest copies it first. Therefore events, snapshots and cached encodings are safe to share.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import orjson

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi.registry import Table


class Record:
    """One version of one object with its encoding.

    Attributes:
        obj: The manifest in its stored version; not to be changed.
        version: Its resource version as a number.
    """

    __slots__ = ("_bare", "_raw", "obj", "version")

    def __init__(self, obj: Manifest, version: int) -> None:
        """Wrap a manifest that nobody changes any more."""
        self.obj = obj
        self.version = version
        self._raw: bytes | None = None
        self._bare: bytes | None = None

    @property
    def raw(self) -> bytes:
        """The manifest as JSON, encoded once."""
        if self._raw is None:
            self._raw = orjson.dumps(self.obj)
        return self._raw

    @property
    def bare(self) -> bytes:
        """The manifest without `apiVersion` and `kind`, as in lists of built-in kinds."""
        if self._bare is None:
            self._bare = orjson.dumps(
                {k: v for k, v in self.obj.items() if k not in ("apiVersion", "kind")}
            )
        return self._bare

    @property
    def uid(self) -> str:
        """UID of the object."""
        uid: str = self.obj["metadata"]["uid"]
        return uid


@dataclass(frozen=True, slots=True)
class Change:
    """One write.

    Attributes:
        version: Resource version of the write.
        type: What happened.
        table: Which resource.
        key: Which object.
        record: The object after the write; for a deletion, its last state at this version.
        before: The object before the write, or None when it was created.
    """

    version: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    table: Table
    key: Key
    record: Record
    before: Record | None


class Store:
    """All objects, the counter of writes, and the history of changes.

    Attributes:
        version: Resource version of the last write.
        oldest: Resource version up to which history was forgotten.
        listeners: Called synchronously with each change.
    """

    def __init__(self, history: int = 20_000) -> None:
        """Start empty.

        Args:
            history: How many changes are kept at least; older ones are forgotten at twice that.
        """
        # A fresh real server has done some hundred writes of its own by the time one can ask it.
        self.version = 100
        self.oldest = 0
        self.listeners: list[Callable[[Change], None]] = []
        self._history = history
        self._tables: defaultdict[Table, dict[Key, Record]] = defaultdict(dict)
        self._changes: list[Change] = []
        self._uids: dict[str, tuple[Table, Key]] = {}
        self._dependents: defaultdict[str, dict[tuple[Table, Key], None]] = defaultdict(dict)

    def table(self, table: Table) -> dict[Key, Record]:
        """Return the records of a resource; not to be changed."""
        return self._tables[table]

    def tables(self) -> Iterable[Table]:
        """Return the resources that have or had objects."""
        return list(self._tables)

    def get(self, table: Table, key: Key) -> Record | None:
        """Return the record of an object, or None."""
        return self._tables[table].get(key)

    def put(self, table: Table, key: Key, obj: Manifest) -> Record:
        """Store an object at the next resource version, which is written into its metadata."""
        before = self._tables[table].get(key)
        record = self._stamp(obj)
        self._tables[table][key] = record
        self._index(table, key, before, record)
        self._remember("MODIFIED" if before else "ADDED", table, key, record, before)
        return record

    def delete(self, table: Table, key: Key) -> Record:
        """Remove an object; returns its last state, at the resource version of the deletion."""
        before = self._tables[table].pop(key)
        record = self._stamp({**before.obj, "metadata": dict(before.obj["metadata"])})
        self._index(table, key, before, None)
        self._remember("DELETED", table, key, record, before)
        return record

    def locate(self, uid: str) -> tuple[Table, Key] | None:
        """Return where the object with this UID is, or None when there is none."""
        return self._uids.get(uid)

    def dependents(self, uid: str) -> list[tuple[Table, Key]]:
        """Return the objects with an owner reference to this UID."""
        return list(self._dependents.get(uid, ()))

    def changes_since(self, version: int, table: Table) -> list[Change]:
        """Return the remembered changes of a resource after a resource version, oldest first."""
        start = bisect_right(self._changes, version, key=lambda change: change.version)
        return [change for change in self._changes[start:] if change.table == table]

    def snapshot(self, table: Table, version: int) -> dict[Key, Record]:
        """Return the records of a resource as they were at a remembered resource version."""
        records = dict(self._tables[table])
        for change in reversed(self.changes_since(version, table)):
            if change.before is None:
                records.pop(change.key, None)
            else:
                records[change.key] = change.before
        return records

    def compact(self) -> None:
        """Forget all history: watches and continue tokens from before are answered 410."""
        self.oldest = self.version
        self._changes.clear()

    def bump(self) -> int:
        """Move the resource version on without a write, as a write to another group does."""
        self.version += 1
        return self.version

    def _stamp(self, obj: Manifest) -> Record:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        return Record(obj, self.version)

    def _remember(
        self,
        type_: Literal["ADDED", "MODIFIED", "DELETED"],
        table: Table,
        key: Key,
        record: Record,
        before: Record | None,
    ) -> None:
        change = Change(record.version, type_, table, key, record, before)
        self._changes.append(change)
        if len(self._changes) > 2 * self._history:
            self.oldest = self._changes[self._history - 1].version
            del self._changes[: self._history]
        for listener in self.listeners:
            listener(change)

    def _index(self, table: Table, key: Key, before: Record | None, after: Record | None) -> None:
        where = (table, key)
        if before is not None:
            for reference in before.obj["metadata"].get("ownerReferences") or ():
                self._dependents[reference["uid"]].pop(where, None)
            if after is None or after.uid != before.uid:
                self._uids.pop(before.uid, None)
        if after is not None:
            self._uids[after.uid] = where
            for reference in after.obj["metadata"].get("ownerReferences") or ():
                self._dependents[reference["uid"]][where] = None
