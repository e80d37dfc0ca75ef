"""Triggers: the changes that trigger reconciles of a controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from libs.common.clock import Clock, SystemClock
from libs.common.finalizers import is_orphaning
from libs.common.kinds import Key, Manifest, is_deleting, uid_of
from libs.common.ownership import controller_of
from libs.common.runtime.cache import Cache
from libs.common.runtime.controller import Controller, Watch
from libs.common.runtime.informer import Handler, Origin
from libs.common.runtime.namespace_queue import PRIORITY_EXPEDITE, PRIORITY_LIVE, PRIORITY_RESYNC
from libs.common.runtime.queue import WorkQueue
from libs.common.runtime.store import Change

_REPAIR_SECONDS: Final = 60.0


class Triggers:
    """Fills the queue of a controller from the changes of its watched kinds.

    Args:
        controller: Declaration of the controller.
        queue: Queue of the controller.
        cache: Informers of the watched kinds.
        forget: Called with the key of a primary that no longer exists.
        clock: Time source of the pause between resyncs after errors of a mapper.
    """

    def __init__(
        self,
        controller: Controller,
        queue: WorkQueue,
        cache: Cache,
        *,
        forget: Callable[[Key], None],
        clock: Clock | None = None,
    ) -> None:
        """Register with the informers; nothing is enqueued before `begin`."""
        self._controller = controller
        self._queue = queue
        self._cache = cache
        self._forget = forget
        self._clock = clock or SystemClock()
        self._pausing = False
        self._failed_again = False
        self._begun = False
        self._orphaning: set[str] = set()
        self._store = cache.store(controller.primary)
        self._kinds = tuple(
            dict.fromkeys((controller.primary, *(watch.kind for watch in controller.watched)))
        )
        cache.informer(controller.primary).add_handler(self._primary_changed, self._repair)
        for watch in controller.watched:
            cache.informer(watch.kind).add_handler(self._build_handler(watch), self._repair)
        for kind in {watch.kind for watch in controller.watched if watch.optional}:
            cache.informer(kind).add_served_handler(self.resync)
        for kind in self._kinds:
            cache.informer(kind).add_scope_handler(self._resync_namespace)

    def begin(self) -> None:
        """Request a reconcile of every primary, and from now on of those affected by changes.

        A standby fills its caches but no queue: nobody would remove keys of deleted objects, and
        keys that wait for days would look like stuck workers.
        """
        self._begun = True
        self.resync()

    def resync(self) -> None:
        """Request a reconcile of every primary."""
        self._resync_keys(self._store)

    def _repair(self) -> None:
        """Request a reconcile of every primary after an error of a handler, at most once a minute.

        One object of one tenant may cause such an error with each of its changes.
        """
        self._failed_again = self._pausing
        if self._begun and not self._pausing:
            self.resync()
            self._pausing = True
            self._clock.call_later(_REPAIR_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        self._pausing = False
        if self._failed_again:
            self._repair()

    def is_orphaning(self, uid: str) -> bool:
        """Return whether a primary is being deleted with `--cascade=orphan`.

        The garbage collector removes the finalizer that says so as soon as it has removed the owner
        references of the children. A reconcile may only see the version after that, and children
        without an owner reference would not show that they must be kept.
        """
        return uid in self._orphaning

    def find_blocked(self, key: Key, primary: Manifest) -> str:
        """Return why a primary cannot be reconciled, or an empty text.

        Primaries in a namespace are only reconciled if all kinds in it can be read. A
        cluster-scoped primary can be used from any namespace: it is not finalized before all
        namespaces can be read.
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
            # The object no longer exists, so there is nothing left to do for it.
            self._queue.drop(key)
            self._forget(key)
            self._orphaning.discard(uid_of(old))
        if new is not None and is_orphaning(new):
            self._orphaning.add(uid_of(new))
        if new is None or self._is_own(origin, key):
            return
        predicate = self._controller.predicate
        # A new object with the same name is another object.
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
                # If the mapper fails on the old version, the new version must still be mapped.
                try:
                    keys = list(mapper(manifest, self._cache) if mapper else self._owners(manifest))
                except Exception as err:  # noqa: BLE001 raised below
                    errors.append(err)
                    continue
                for key in keys:
                    if not self._is_own(origin, key):
                        self._enqueue(key, PRIORITY_LIVE)
            if errors:
                # The affected primaries are unknown, so the informer requests a reconcile of all.
                raise errors[0]

        return handle

    def _is_own(self, origin: Origin | None, key: Key) -> bool:
        return origin is not None and origin == Origin(self._controller.name, key)

    def _enqueue(self, key: Key, priority: int) -> None:
        if self._begun:
            self._queue.add(key, priority=priority)

    def _owners(self, manifest: Manifest) -> list[Key]:
        """Return the primary that controls an object, if its UID matches."""
        reference = controller_of(manifest)
        primary = self._controller.primary
        if reference is None or not primary.matches(reference):
            return []
        namespace = manifest["metadata"].get("namespace") or "" if primary.namespaced else ""
        key = Key(namespace, reference["name"])
        held = self._store.get(key)
        if held is not None and uid_of(held) != reference["uid"]:
            # The owner was an earlier incarnation: the garbage collector deletes the object.
            return []
        return [key]
