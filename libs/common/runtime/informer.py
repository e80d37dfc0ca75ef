"""Informer: a store of one kind that a source fills, and handlers that receive each change.

Sources differ in the information that they provide. A reflector lists and watches, so it knows when
a listing is complete. kopf yields single events, and after a gap only the objects that still exist;
the sweep (`libs.common.runtime.sweep`) finds deletions in the gap. Handlers see the same for every
source: the object before and after a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import structlog

from libs.common.clock import Clock, SystemClock
from libs.common.errors import SlipwayError
from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of, version_of
from libs.common.labels import compile_selectors
from libs.common.metrics import CacheMetrics
from libs.common.runtime.scope import PATIENCE_SECONDS, Scope, ScopeSet
from libs.common.runtime.store import Change, Store, Transform, strip_noise

log = structlog.get_logger(__name__)


_MISSING_SECONDS: Final = 5.0
"""Time for which a kind must be missing from discovery before its objects are dropped."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The reconcile that made a change, which does not need to be notified of it.

    Attributes:
        controller: Controller of the reconcile.
        key: Primary of the reconcile.
    """

    controller: str
    key: Key


type Handler = Callable[[Change, Origin | None], None]
"""Handles a change; the origin is the reconcile that made it, or None."""
type SourceName = Literal["kopf", "reflector"]


class Informer:
    """A store of one kind that is kept up to date.

    Args:
        kind: The watched kind.
        namespaces: Watched namespaces; empty for the whole cluster.
        label_selector: Restricts the watch to matching objects; evaluated by the server.
        field_selector: The same for fields.
        transform: Reduces each object before it is stored.
        metadata_only: Whether the store holds only metadata; needs the source `reflector`.
        source: Event source that fills the store.
        optional: Whether the operator works if the cluster does not serve the kind.
        clock: Time source.
        metrics: Metrics of the number of objects and of events.
        patience: Seconds after which nobody waits any more for a scope that cannot be read.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        namespaces: Sequence[str] = (),
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip_noise,
        metadata_only: bool = False,
        source: SourceName = "kopf",
        optional: bool = False,
        clock: Clock | None = None,
        metrics: CacheMetrics | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Start with an empty, unsynced store."""
        self.kind = kind
        self.label_selector = label_selector
        self.field_selector = field_selector
        self.metadata_only = metadata_only
        self.source = source
        self.optional = optional
        self.store = Store(kind, self._keep_metadata if metadata_only else transform)
        self.served = True
        self._selects = compile_selectors(label_selector, field_selector)
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._opaque_versions = False
        self._handlers: list[tuple[Handler, Callable[[], None] | None]] = []
        self._served_handlers: list[Callable[[], None]] = []
        names = (tuple(namespaces) if kind.namespaced else ()) or ("",)
        self._scopes = ScopeSet(kind, names, self._clock, patience)
        self._missing_since: float | None = None
        self._writing: dict[Key, tuple[Origin, str]] = {}
        if metrics is not None:
            metrics.watch_age(lambda: self.silence)
            metrics.count_objects(lambda: len(self.store))

    # Scopes: the namespaces that are listed and watched separately.

    @property
    def scopes(self) -> tuple[str, ...]:
        """Namespaces that are listed and watched separately; the empty name stands for all."""
        return self._scopes.names

    @property
    def all_scopes(self) -> tuple[Scope, ...]:
        """The scopes of the watched namespaces."""
        return self._scopes.all

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Watched namespaces; empty for the whole cluster."""
        return tuple(name for name in self.scopes if name)

    def scope_of(self, namespace: str) -> Scope | None:
        """Return the scope of a namespace, or None if it is not watched."""
        return self._scopes.find(namespace)

    def watch_namespaces(self, namespaces: Iterable[str]) -> None:
        """Watch exactly these namespaces from now on.

        Objects in other namespaces are removed from the store, and the handlers receive their
        removal.
        """
        for gone in self._scopes.replace(namespaces):
            self.notify(self.store.clear(gone))

    def wait_scopes_changed(self) -> Coroutine[Any, Any, object]:
        """Wait until scopes were added or removed after this call, and not only after its await."""
        return self._scopes.wait_changed()

    def add_scope_handler(self, handler: Callable[[str], None]) -> None:
        """Add a handler that is called with each namespace that becomes readable.

        It is only called after the first sync of the informer: until then no worker runs.
        """
        self._scopes.add_handler(handler)

    @property
    def synced(self) -> bool:
        """Whether the store has received a complete listing of each readable scope."""
        return self._scopes.synced.is_set()

    async def wait_synced(self) -> None:
        """Wait for the first complete listing of each readable scope."""
        await self._scopes.synced.wait()

    def mark_synced(self, namespace: str = "") -> None:
        """Record that one scope was listed completely."""
        self._scopes.mark_synced(namespace)

    def note_failure(self, namespace: str, err: SlipwayError) -> bool:
        """Record that a scope was refused, and return whether it is blocked."""
        return self._scopes.note_failure(namespace, err)

    def block(self, namespace: str, err: SlipwayError) -> None:
        """Stop waiting for a scope that cannot be read, while others can."""
        self._scopes.block(namespace, err)

    @property
    def silence(self) -> float:
        """Seconds since the last event of the source, in the scope with the oldest one.

        Kinds that are not served and scopes that cannot be read are ignored.
        """
        if not self.served:
            return 0.0
        return max((each.silence for each in self.all_scopes if not each.blocked), default=0.0)

    # Changes.

    def add_handler(self, handler: Handler, repair: Callable[[], None] | None = None) -> None:
        """Pass each change to a handler from now on.

        Args:
            handler: Called with each change.
            repair: Called after the handler raised an error for a change, which is not passed
                again.
        """
        self._handlers.append((handler, repair))

    def add_served_handler(self, handler: Callable[[], None]) -> None:
        """Add a handler that is called when the cluster starts or stops to serve the kind.

        A new kind without objects causes no change of an object.
        """
        self._served_handlers.append(handler)

    def mark_alive(self, namespace: str = "") -> None:
        """Record that the source is alive, after an event, a bookmark or a listing."""
        self._missing_since = None
        self._set_served(True)
        scope = self.scope_of(namespace)
        if scope is not None:
            scope.mark_alive()

    def _keep_metadata(self, manifest: Manifest) -> Manifest:
        """Return what a watch of metadata sends, also of an object that a sweep has read whole."""
        type_ = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        return {**type_, "metadata": strip_noise(manifest)["metadata"]}

    def put(self, manifest: Manifest) -> Change | None:
        """Process the event that an object exists."""
        if not self._is_expected(manifest):
            return None
        change = self.store.put(manifest)
        if change is not None:
            self.notify([change], self._find_writer(change))
        return change

    def remove(self, manifest: Manifest) -> Change | None:
        """Process the event that an object was deleted or is no longer selected."""
        if not self._is_expected(manifest):
            return None
        change = self.store.remove(key_of(manifest), uid_of(manifest), version_of(manifest))
        if change is not None:
            self.notify([change], self._find_writer(change))
        return change

    @contextmanager
    def writing(self, key: Key, origin: Origin, uid: str = "") -> Iterator[None]:
        """Expect the event of a create, or of the deletion of what was just created.

        It may arrive before the response and would trigger another reconcile of the same primary: a
        reconcile that creates an object, fails and deletes it again would repeat without back-off.

        Args:
            key: Key of the object that is written.
            origin: The reconcile that writes.
            uid: UID of the object that is deleted; empty for a create.
        """
        self._writing[key] = (origin, uid)
        try:
            yield
        finally:
            self._writing.pop(key, None)

    def _find_writer(self, change: Change) -> Origin | None:
        """Return the reconcile whose write caused a change and has no response yet."""
        origin, uid = self._writing.get(change.key, (None, "")) if self._writing else (None, "")
        if change.old is None:
            return None if uid else origin
        is_deletion = change.new is None or (
            is_deleting(change.new) and not is_deleting(change.old)
        )
        return origin if is_deletion and uid == uid_of(change.old) else None

    def wrote(self, manifest: Manifest, origin: Origin | None = None) -> Change | None:
        """Process the response to our own write, and notify all handlers except for its origin.

        The event of the write arrives later and is no change any more, so other controllers must be
        notified now.

        Args:
            manifest: Object in the response.
            origin: The reconcile that wrote; None if the response may contain changes of others, so
                that the reconcile must be notified as well.
        """
        key = key_of(manifest)
        if self.scope_of(key.namespace) is not None and self._selects(manifest):
            change = self.store.put(manifest)
        else:
            # No event will report its deletion, so it must not remain in the store.
            change = self.store.remove(key, uid_of(manifest), version_of(manifest))
        self.notify([change] if change else [], origin)
        return change

    def _is_expected(self, manifest: Manifest) -> bool:
        """Record that the source is alive; return whether the scope is still watched."""
        namespace = key_of(manifest).namespace
        self.mark_alive(namespace)
        return self.scope_of(namespace) is not None

    def observe_deleted(
        self, key: Key, uid: str, version: int | None = None, origin: Origin | None = None
    ) -> Change | None:
        """Process the absence of an object, seen by our own deletion, a read or in a listing.

        Args:
            key: Key of the object.
            uid: UID of the object.
            version: Resource version of the listing without the object: the object may return if it
                only lost the selected label. None means that it was deleted.
            origin: The reconcile that deletes what it has just created. Other reconciles are
                notified of their deletions, because their events are no change any more.
        """
        change = self.store.remove(key, uid, version)
        self.notify([change] if change else [], origin)
        return change

    def note_missing(self) -> bool:
        """Record that discovery does not contain the kind; return whether this can be trusted.

        API servers that have just started do not know all kinds yet. So a kind that was served
        before only counts as removed if it is still missing some seconds later.
        """
        now = self._clock.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        was_read = self.served and any(scope.synced for scope in self.all_scopes)
        return not was_read or now - self._missing_since >= _MISSING_SECONDS

    def mark_unserved(self) -> None:
        """Record that the API server does not serve the kind, and remove its objects."""
        self._set_served(False)
        self.notify(self.store.clear())
        for scope in self.scopes:
            self.mark_synced(scope)

    def _set_served(self, served: bool) -> None:
        if self.served is served:
            return
        self.served = served
        for handler in self._served_handlers:
            handler()

    def note_opaque_versions(self) -> None:
        """Log once that the versions of this kind have no order."""
        if not self._opaque_versions:
            self._opaque_versions = True
            log.warning(
                "Resource versions are not numbers; events may repeat",
                resource=self.kind.resource,
            )

    def swept(self, objects: int) -> None:
        """Record changes for which there was no event."""
        if self._metrics is not None:
            self._metrics.swept(objects)

    def notify(self, changes: Sequence[Change], origin: Origin | None = None) -> None:
        """Pass changes of the store to the handlers."""
        for change in changes:
            for handler, repair in self._handlers:
                try:
                    handler(change, origin)
                except Exception as err:  # noqa: BLE001 one object must not hide the others
                    self._note_handler_error(change, err)
                    if repair is not None:
                        repair()

    def _note_handler_error(self, change: Change, err: Exception) -> None:
        where = {"resource": self.kind.resource, "object": str(change.key)}
        log.error("Event handler failed", **where, exc_info=err)
        if self._metrics is not None:
            self._metrics.handler_failed()


class EventSource(Protocol):
    """A source of events for informers.

    A source must deliver each existing object at least once, and each later change at least once
    and in order. It may lose deletions that happen while it is disconnected.
    """

    async def run(self, informers: Sequence[Informer], stop: asyncio.Event) -> None:
        """Feed the informers until `stop` is set.

        Raises:
            Exception: The source cannot continue; the process must exit and be restarted.
        """


async def run_in_scopes(
    informer: Informer, work: Callable[[Scope], Coroutine[Any, Any, None]]
) -> None:
    """Run a task for each scope of an informer for as long as the scope exists."""
    tasks: dict[Scope, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            present = set(informer.all_scopes)
            for scope in tasks.keys() - present:
                tasks.pop(scope).cancel()
            for scope in present - tasks.keys():
                name = f"{informer.kind} {scope}"
                tasks[scope] = group.create_task(work(scope), name=name)
            await informer.wait_scopes_changed()
