"""Triggers: which changes ask for passes over which primaries of one controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from libs.common.kinds import Key, Manifest, is_deleting, uid_of
from libs.common.ownership import controller_of
from libs.common.runtime.cache import Cache
from libs.common.runtime.controller import Controller, Watch
from libs.common.runtime.informer import Handler, Origin
from libs.common.runtime.queue import (
    PRIORITY_EXPEDITE,
    PRIORITY_LIVE,
    PRIORITY_RESYNC,
    WorkQueue,
)
from libs.common.runtime.store import Change


class Triggers:
    """Fill the queue of one controller from the changes of what it watches.

    Args:
        controller: What is reconciled, and what it watches.
        queue: Where keys go.
        cache: Informers that tell of changes.
        forget: Called with the key of a primary that is gone.
    """

    def __init__(
        self,
        controller: Controller,
        queue: WorkQueue,
        cache: Cache,
        *,
        forget: Callable[[Key], None],
    ) -> None:
        """Listen to the informers; nothing is enqueued before `begin`."""
        self._controller = controller
        self._queue = queue
        self._cache = cache
        self._forget = forget
        self._begun = False
        self._store = cache.store(controller.primary)
        self._kinds = tuple(
            dict.fromkeys((controller.primary, *(watch.kind for watch in controller.watched)))
        )
        cache.informer(controller.primary).add_handler(self._primary_changed, self.resync)
        for watch in controller.watched:
            cache.informer(watch.kind).add_handler(self._build_handler(watch), self.resync)
        for kind in {watch.kind for watch in controller.watched if watch.optional}:
            cache.informer(kind).add_served_handler(self.resync)
        for kind in self._kinds:
            cache.informer(kind).add_scope_handler(self._resync_namespace)

    def begin(self) -> None:
        """Ask for a pass over every primary, and from now on for those that a change concerns.

        A standby fills its caches and no queue: nobody would take from it what is gone, and keys
        that wait for days would tell of workers that are stuck.
        """
        self._begun = True
        self.resync()

    def resync(self) -> None:
        """Ask for a pass over every primary."""
        self._resync_keys(self._store)

    def find_blocked(self, key: Key, primary: Manifest) -> str:
        """Tell why no reconcile can be made over a primary; empty when one can.

        A namespace is only worked on when all kinds in it can be read. What belongs to no
        namespace may be used from any: it is not let go before all of them can be read.
        """
        if key.namespace:
            return self._cache.find_blocked(self._kinds, key.namespace)
        return self._cache.find_blocked(self._kinds, None) if is_deleting(primary) else ""

    def _resync_namespace(self, namespace: str) -> None:
        primary = self._controller.primary
        self._resync_keys(self._store.keys(namespace or None if primary.namespaced else None))

    def _resync_keys(self, keys: Iterable[Key]) -> None:
        for key in keys:
            primary = self._store.get(key)
            going = primary is not None and is_deleting(primary)
            self._enqueue(key, PRIORITY_EXPEDITE if going else PRIORITY_RESYNC)

    def _primary_changed(self, change: Change, origin: Origin | None) -> None:
        key, old, new = change.key, change.old, change.new
        if old is not None and (new is None or uid_of(new) != uid_of(old)):
            # Nothing is left to do for it, and what comes after it has done no harm yet.
            self._queue.drop(key)
            self._forget(key)
        if new is None or self._is_own(origin, key):
            return
        predicate = self._controller.predicate
        # A namesake is another object.
        before = old if old is not None and uid_of(old) == uid_of(new) else None
        if predicate is None or predicate(before, new):
            self._enqueue(key, PRIORITY_EXPEDITE if is_deleting(new) else PRIORITY_LIVE)

    def _build_handler(self, watch: Watch) -> Handler:
        mapper, predicate = watch.mapper, watch.predicate

        def handle(change: Change, origin: Origin | None) -> None:
            if not self._begun or (predicate and not predicate(change.old, change.new)):
                return
            errors: list[Exception] = []
            for manifest in (change.old, change.new):
                if manifest is None:
                    continue
                # An old version that the mapper cannot read must not hide the new one.
                try:
                    keys = list(mapper(manifest, self._cache) if mapper else self._owners(manifest))
                except Exception as err:  # noqa: BLE001 raised below
                    errors.append(err)
                    continue
                for key in keys:
                    if not self._is_own(origin, key):
                        self._enqueue(key, PRIORITY_LIVE)
            if errors:
                # Which primaries it concerns is unknown, so the informer asks for all of them.
                raise errors[0]

        return handle

    def _is_own(self, origin: Origin | None, key: Key) -> bool:
        return origin is not None and origin == Origin(self._controller.name, key)

    def _enqueue(self, key: Key, priority: int) -> None:
        if self._begun:
            self._queue.add(key, priority=priority)

    def _owners(self, manifest: Manifest) -> list[Key]:
        """Return the primary that controls an object, if it is the one that is named, by UID."""
        reference = controller_of(manifest)
        primary = self._controller.primary
        if reference is None or not primary.matches(reference):
            return []
        namespace = manifest["metadata"].get("namespace") or "" if primary.namespaced else ""
        key = Key(namespace, reference["name"])
        held = self._store.get(key)
        if held is not None and uid_of(held) != reference["uid"]:
            # Left over from an earlier incarnation: the garbage collector's business.
            return []
        return [key]
