"""Store: the known objects of a kind by key, owner and index, including our own writes.

The store is updated by a source (list and watch) and by the responses to our own writes. Both
contain resource versions, so the newer one always wins and a writer reads its own writes
immediately. So a controller can plan from the cache without tracking expectations: a pod that was
just created is in the cache before the next line of code runs.

A deleted object leaves a tombstone, so that a delayed older event cannot restore it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import structlog

from libs.common.apply import keep_rivals
from libs.common.kinds import (
    Key,
    Kind,
    Manifest,
    identity_of,
    is_outdated,
    key_of,
    uid_of,
    version_of,
    version_text,
)
from libs.common.labels import matches_selector
from libs.common.ownership import controller_uid

log = structlog.get_logger(__name__)

type Transform = Callable[[Manifest], Manifest]
"""Reduces an object to the fields that the operator reads; called once for each version."""
type Objects = list[Manifest]
type IndexFunction = Callable[[Manifest], Iterable[str]]
"""Returns the index values of an object."""

_TOMBSTONES: Final = 10_000
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_GONE_FOR_GOOD: Final = 1 << 63
_NOTHING: Final[dict[Key, Manifest]] = {}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an object: the versions before and after it; None stands for absence."""

    kind: Kind
    old: Manifest | None
    new: Manifest | None

    @property
    def key(self) -> Key:
        """Key of the object."""
        present = self.new if self.new is not None else self.old
        assert present is not None
        return key_of(present)


type Changes = list[Change]


def strip_noise(manifest: Manifest) -> Manifest:
    """Drop large fields that no operator reads: managed fields, kubectl's annotation.

    An object that is applied keeps the managed fields that tell what others have replaced.
    """
    metadata = dict(manifest["metadata"])
    metadata.pop("managedFields", None)
    if rivals := keep_rivals(manifest):
        metadata["managedFields"] = rivals
    annotations = metadata.get("annotations")
    if annotations and _LAST_APPLIED in annotations:
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
    return {**manifest, "metadata": metadata}


class Store:
    """The objects of one kind.

    Returned objects are shared: never change them.

    Args:
        kind: Kind of the objects.
        transform: Applied to each object before it is stored.
    """

    def __init__(self, kind: Kind, transform: Transform = strip_noise) -> None:
        """Start empty."""
        self.kind = kind
        self.transform = transform
        # By namespace, so that a list of one namespace does not iterate over the others.
        self._partitions: dict[str, dict[Key, Manifest]] = {}
        self._count = 0
        self._newest = 0
        self._by_owner: dict[str, set[Key]] = {}
        self._indexes: dict[str, tuple[IndexFunction, dict[str, set[Key]]]] = {}
        self._tombstones: OrderedDict[str, int] = OrderedDict()

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index; existing objects are indexed immediately."""
        index: dict[str, set[Key]] = {}
        self._indexes[name] = (function, index)
        for key, manifest in self._items():
            for value in self._values(function, manifest):
                index.setdefault(value, set()).add(key)

    def get(self, key: Key) -> Manifest | None:
        """Return an object, or None."""
        return self._partitions.get(key.namespace, _NOTHING).get(key)

    def owned_by(self, uid: str) -> Objects:
        """Return the objects that the owner with this UID controls, by name."""
        return self._sorted(self._by_owner.get(uid, ()))

    def indexed(self, name: str, value: str) -> Objects:
        """Return the objects that an index has for a value, by name.

        Raises:
            KeyError: The index does not exist.
        """
        return self._sorted(self._indexes[name][1].get(value, ()))

    def list(
        self, namespace: str | None = None, selector: Mapping[str, Any] | None = None
    ) -> Objects:
        """Return the objects of a namespace (None for all) that a label selector matches."""
        return [
            manifest
            for _, manifest in self._items(namespace)
            if selector is None
            or matches_selector(selector, manifest["metadata"].get("labels") or {})
        ]

    def __len__(self) -> int:
        """Return the number of objects."""
        return self._count

    def __iter__(self) -> Iterator[Key]:
        """Iterate over a snapshot of the keys."""
        return iter([key for key, _ in self._items()])

    def keys(self, namespace: str | None = None) -> tuple[Key, ...]:
        """Return the keys of one namespace, or of all."""
        return tuple(key for key, _ in self._items(namespace))

    def put(self, manifest: Manifest) -> Change | None:
        """Store a version of an object.

        Returns:
            The change, or None if the version is not newer than the stored one, or differs only in
            fields that the transform drops.
        """
        uid, version = uid_of(manifest), version_of(manifest)
        self._newest = max(self._newest, version)
        if version <= self._tombstones.get(uid, -1):
            return None
        key = key_of(manifest)
        old = self.get(key)
        if old is not None and self._is_newer(old, manifest):
            return None
        new = self.reduce(manifest)
        self._keep(key, old, new)
        if old is not None and _same(old, new):
            return None
        return Change(self.kind, old, new)

    def remove(self, key: Key, uid: str, version: int | None = None) -> Change | None:
        """Remove one incarnation of an object.

        Args:
            key: Key of the object.
            uid: UID of the object; another object with the key is kept.
            version: Resource version of the removal, if known. Without it, the object counts as
                deleted permanently.
        """
        # Without an order, an object that lost the selected label could not come back.
        if version != 0 and uid:
            self._add_tombstone(uid, _GONE_FOR_GOOD if version is None else version)
        self._newest = max(self._newest, version or 0)
        old = self.get(key)
        if old is None or identity_of(old) != (uid or str(key)):
            return None
        if version and version_of(old) > version:
            # Our own write is newer than the event: the object lost the selected label and got it
            # back.
            return None
        self._drop(key, old)
        return Change(self.kind, old, None)

    def begin_listing(self, namespace: str | None = None) -> Listing:
        """Begin a listing that is processed page by page.

        Args:
            namespace: Namespace that is listed; None for all.
        """
        return Listing(self, namespace)

    def clear(self, namespace: str | None = None) -> Changes:
        """Remove all objects of one namespace or of all, as if they had never been seen."""
        changes: Changes = []
        for key, old in list(self._items(namespace)):
            self._drop(key, old)
            changes.append(Change(self.kind, old, None))
        return changes

    def uids(self, namespace: str | None = None) -> dict[str, Key]:
        """Return the key of each UID, or of each object without one, in one namespace or in all."""
        return {identity_of(manifest): key for key, manifest in self._items(namespace)}

    def last_seen(self, key: Key, uid: str) -> int:
        """Return the version of an incarnation or of its deletion, or 0 if neither is known."""
        held = self.get(key)
        version = version_of(held) if held is not None and uid_of(held) == uid else 0
        return max(version, self._tombstones.get(uid, 0))

    def is_gone(self, uid: str) -> bool:
        """Return whether the deletion of an incarnation was seen."""
        return self._tombstones.get(uid) == _GONE_FOR_GOOD

    @property
    def newest(self) -> int:
        """Highest resource version seen so far, or 0."""
        return self._newest

    def _items(self, namespace: str | None = None) -> Iterable[tuple[Key, Manifest]]:
        if namespace is not None:
            return self._partitions.get(namespace, _NOTHING).items()
        return chain.from_iterable(part.items() for part in self._partitions.values())

    def _is_newer(self, old: Manifest, new: Manifest) -> bool:
        if uid_of(old) == uid_of(new):
            return not is_outdated(version_text(old), version_text(new))
        # Of two incarnations with one name, the later one has the higher resource version. Versions
        # that are no numbers have no order; then the event counts.
        return version_of(old) > version_of(new) > 0

    def _keep(self, key: Key, old: Manifest | None, new: Manifest) -> None:
        if old is not None:
            if uid_of(old) and uid_of(old) != uid_of(new):
                self._add_tombstone(uid_of(old), _GONE_FOR_GOOD)
            self._unlink(key, old)
        else:
            self._count += 1
        self._partitions.setdefault(key.namespace, {})[key] = new
        owner = controller_uid(new)
        if owner:
            self._by_owner.setdefault(owner, set()).add(key)
        for function, index in self._indexes.values():
            for value in self._values(function, new):
                index.setdefault(value, set()).add(key)

    def reduce(self, manifest: Manifest) -> Manifest:
        """Return the reduced form of an object."""
        try:
            return self.transform(manifest)
        except Exception:
            # One object of one tenant must not end the process for everybody.
            log.exception(
                "Transform failed, caching the whole object",
                resource=str(self.kind),
                object=str(key_of(manifest)),
            )
            return strip_noise(manifest)

    def _values(self, function: IndexFunction, manifest: Manifest) -> Iterable[str]:
        try:
            return list(function(manifest))
        except Exception:
            where = {"resource": str(self.kind), "object": str(key_of(manifest))}
            log.exception("Index function failed, object left out of the index", **where)
            return ()

    def _drop(self, key: Key, old: Manifest) -> None:
        self._unlink(key, old)
        self._count -= 1
        partition = self._partitions[key.namespace]
        del partition[key]
        if not partition:
            del self._partitions[key.namespace]

    def _unlink(self, key: Key, old: Manifest) -> None:
        owner = controller_uid(old)
        if owner:
            _discard(self._by_owner, owner, key)
        for function, index in self._indexes.values():
            for value in self._values(function, old):
                _discard(index, value, key)

    def _add_tombstone(self, uid: str, version: int) -> None:
        self._tombstones[uid] = max(version, self._tombstones.pop(uid, 0))
        if len(self._tombstones) > _TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _sorted(self, keys: Iterable[Key]) -> Objects:
        return [self._partitions[key.namespace][key] for key in sorted(keys)]


class Listing:
    """A listing of one namespace, or of all, that a store processes page by page.

    Objects of a page are in the store immediately. Objects that are on no page and not newer than
    the listing are removed at the end: only then is it certain that they were deleted.
    """

    def __init__(self, store: Store, namespace: str | None) -> None:
        """Initialize; called by `Store.begin_listing`."""
        self._store = store
        self._namespace = namespace
        self._seen: set[str] = set()

    def restart(self) -> None:
        """Forget the listed objects, because the listing begins again at a later version."""
        self._seen.clear()

    def take(self, items: Iterable[Manifest]) -> Changes:
        """Process the objects of a page."""
        changes: Changes = []
        for manifest in items:
            self._seen.add(identity_of(manifest))
            change = self._store.put(manifest)
            if change is not None:
                changes.append(change)
        return changes

    def finish(self, version: int) -> Changes:
        """Remove objects that were on no page.

        Args:
            version: Resource version of the listing.
        """
        missing = [
            (key, uid)
            for uid, key in self._store.uids(self._namespace).items()
            if uid not in self._seen
        ]
        changes: Changes = []
        for key, uid in missing:
            held = self._store.get(key)
            # An object that is newer than the listing was created after it, by our own write.
            if held is None or (version and version_of(held) > version):
                continue
            change = self._store.remove(key, uid, version)
            if change is not None:
                changes.append(change)
        return changes


def _same(old: Manifest, new: Manifest) -> bool:
    """Compare two versions of an object, ignoring the resource version."""
    if old.keys() != new.keys():
        return False
    for name, value in new.items():
        if name == "metadata":
            if _without_version(old[name]) != _without_version(value):
                return False
        elif old[name] != value:
            return False
    return True


def _without_version(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != "resourceVersion"}


def _discard(index: dict[str, set[Key]], value: str, key: Key) -> None:
    keys = index.get(value)
    if keys is not None:
        keys.discard(key)
        if not keys:
            del index[value]
