"""Informer: one kind, kept in a store by a source, with handlers told of each change.

Sources differ in what they can tell. A reflector lists and watches and so knows when a listing is
complete. kopf yields single events, and after a gap only those objects that still exist; deletions
in the gap are found by the sweep (`libs.common.runtime.sweep`). Whatever the source, the handlers
see the same thing: what was, what is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Protocol

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
"""Time for which a kind that was served must be missing before its objects are given up."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Name the pass that made a change: nobody has to tell it.

    Attributes:
        controller: Controller that wrote.
        key: Primary that it wrote for.
    """

    controller: str
    key: Key


type Handler = Callable[[Change, Origin | None], None]
"""Take a change, and which pass made it."""
type SourceName = Literal["kopf", "reflector"]


class Informer:
    """Keep one kind in a store.

    Args:
        kind: What is watched.
        namespaces: Where; empty for the whole cluster.
        label_selector: What is watched of it, chosen by the server.
        field_selector: Likewise, by its fields.
        transform: Reduces each object before it is kept.
        source: Which event source feeds it.
        optional: Whether the operator works where the kind is not served.
        clock: Time source.
        metrics: Told of sizes and events.
        patience: Seconds after which a scope that cannot be read keeps nobody waiting.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        namespaces: Sequence[str] = (),
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip_noise,
        source: SourceName = "kopf",
        optional: bool = False,
        clock: Clock | None = None,
        metrics: CacheMetrics | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Start with an empty store that is not synced."""
        self.kind = kind
        self.label_selector = label_selector
        self.field_selector = field_selector
        self.source = source
        self.optional = optional
        self.store = Store(kind, transform)
        self.served = True
        self._selects = compile_selectors(label_selector, field_selector)
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._handlers: list[tuple[Handler, Callable[[], None] | None]] = []
        self._served_handlers: list[Callable[[], None]] = []
        names = (tuple(namespaces) if kind.namespaced else ()) or ("",)
        self._scopes = ScopeSet(kind, names, self._clock, patience)
        self._missing_since: float | None = None
        self._writing: dict[Key, tuple[Origin, str]] = {}
        if metrics is not None:
            metrics.watch_age(lambda: self.silence)

    # Scopes: what is listed and watched one by one.

    @property
    def scopes(self) -> tuple[str, ...]:
        """Namespaces to list and watch one by one; the empty one stands for all."""
        return self._scopes.names

    @property
    def all_scopes(self) -> tuple[Scope, ...]:
        """The scopes of these namespaces."""
        return self._scopes.all

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces that are watched; empty for the whole cluster."""
        return tuple(name for name in self.scopes if name)

    def scope_of(self, namespace: str) -> Scope | None:
        """Return the scope that a namespace belongs to; None when it is not watched."""
        return self._scopes.find(namespace)

    def watch_namespaces(self, namespaces: Iterable[str]) -> None:
        """Watch exactly these namespaces from now on.

        What the store has of the others is taken out, and the handlers are told so.
        """
        for gone in self._scopes.replace(namespaces):
            self.tell(self.store.clear(gone))

    async def wait_scopes_changed(self) -> None:
        """Wait until scopes came or went."""
        await self._scopes.wait_changed()

    def add_scope_handler(self, handler: Callable[[str], None]) -> None:
        """Call a handler with each namespace that can be read now and could not before.

        That is told after the first sync of the informer only: until then nobody works.
        """
        self._scopes.add_handler(handler)

    @property
    def synced(self) -> bool:
        """Whether the store has held a complete listing of each scope that can be read."""
        return self._scopes.synced.is_set()

    async def wait_synced(self) -> None:
        """Wait for the first complete listing of each scope that can be read."""
        await self._scopes.synced.wait()

    def mark_synced(self, namespace: str = "") -> None:
        """Note that everything of one scope has been seen once."""
        self._scopes.mark_synced(namespace)

    def note_failure(self, namespace: str, err: SlipwayError) -> bool:
        """Note that a scope was refused; tell whether it is blocked."""
        return self._scopes.note_failure(namespace, err)

    @property
    def silence(self) -> float:
        """Seconds since the source was last heard of, in the scope where that is longest ago.

        A kind that is not served, and a scope that cannot be read, have nothing to tell.
        """
        if not self.served:
            return 0.0
        return max((each.silence for each in self.all_scopes if not each.blocked), default=0.0)

    # Changes.

    def add_handler(self, handler: Handler, repair: Callable[[], None] | None = None) -> None:
        """Tell a handler of each change from now on.

        Args:
            handler: Told of each change.
            repair: Called after the handler raised an error over a change, which is not told again.
        """
        self._handlers.append((handler, repair))

    def add_served_handler(self, handler: Callable[[], None]) -> None:
        """Call a handler whenever the kind comes to be served, or is served no more.

        That there is a kind now, with no object yet, is told by no change of an object.
        """
        self._served_handlers.append(handler)

    def heard(self, namespace: str = "") -> None:
        """Note that the source is alive, by an event, a bookmark or a listing."""
        self._missing_since = None
        self._set_served(True)
        scope = self.scope_of(namespace)
        if scope is not None:
            scope.mark_alive()

    def put(self, manifest: Manifest) -> Change | None:
        """Take in the event that an object exists."""
        if not self._is_expected(manifest):
            return None
        change = self.store.put(manifest)
        if change is not None:
            self.tell([change], self._find_writer(change))
        return change

    def remove(self, manifest: Manifest) -> Change | None:
        """Take in the event that an object is gone, or is no longer selected."""
        if not self._is_expected(manifest):
            return None
        change = self.store.remove(key_of(manifest), uid_of(manifest), version_of(manifest))
        if change is not None:
            self.tell([change], self._find_writer(change))
        return change

    @contextmanager
    def writing(self, key: Key, origin: Origin, uid: str = "") -> Iterator[None]:
        """Expect the event of a write of ours, which may be here before the response.

        Told to the pass that makes it, the event would ask for another reconcile immediately:
        anyone who makes something, fails, and takes it back would do so without end, whatever its
        back-off.

        Args:
            key: What is written.
            origin: The pass that writes.
            uid: Which incarnation is deleted; empty for an object that is created.
        """
        self._writing[key] = (origin, uid)
        try:
            yield
        finally:
            self._writing.pop(key, None)

    def _find_writer(self, change: Change) -> Origin | None:
        """Return the pass that is known to make a change of which no response was heard yet."""
        origin, uid = self._writing.get(change.key, (None, "")) if self._writing else (None, "")
        if change.old is None:
            return None if uid else origin
        goes = change.new is None or (is_deleting(change.new) and not is_deleting(change.old))
        return origin if goes and uid == uid_of(change.old) else None

    def wrote(self, manifest: Manifest, origin: Origin | None = None) -> Change | None:
        """Take in the response to a request of ours, and tell everybody but who made it.

        The event of a write comes later and is no change any more, so this is the moment for the
        other controllers to hear of it.

        Args:
            manifest: Object as the server answered.
            origin: The pass that wrote; None when the response may show what others did, so that
                the pass has to be told too.
        """
        if self._is_watched(manifest):
            change = self.store.put(manifest)
        else:
            # No event will ever tell of its end, so it must not stay in the store.
            change = self.store.remove(key_of(manifest), uid_of(manifest), version_of(manifest))
        self.tell([change] if change else [], origin)
        return change

    def _is_watched(self, manifest: Manifest) -> bool:
        return self.scope_of(key_of(manifest).namespace) is not None and self._selects(manifest)

    def _is_expected(self, manifest: Manifest) -> bool:
        """Note a sign of life; tell whether an event is of a scope that is still watched."""
        namespace = key_of(manifest).namespace
        self.heard(namespace)
        return self.scope_of(namespace) is not None

    def deleted(self, key: Key, uid: str, origin: Origin | None = None) -> None:
        """Take in that a deletion of ours was carried out immediately."""
        change = self.store.remove(key, uid)
        self.tell([change] if change else [], origin)

    def vanished(self, key: Key, uid: str, version: int | None = None) -> Change | None:
        """Take in that an incarnation is gone, seen by a read or in a listing.

        Args:
            key: Where it was.
            uid: Which incarnation.
            version: Resource version of the listing that lacks it: it may be there again later,
                when it had only lost the selected label. None means gone permanently.
        """
        change = self.store.remove(key, uid, version)
        self.tell([change] if change else [])
        return change

    def replace(self, items: Iterable[Manifest], version: int, namespace: str = "") -> None:
        """Take in a complete listing of one scope and mark it synced."""
        self.heard(namespace)
        self.tell(self.store.replace(items, version, namespace or None))
        self.mark_synced(namespace)

    def note_missing(self) -> bool:
        """Note that neither the kind nor discovery of it was found; tell whether to believe it.

        API servers that have just started do not know all kinds yet. So what was served before is
        only believed to be gone when it is still missing some seconds later.
        """
        now = self._clock.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        return not self._was_read() or now - self._missing_since >= _MISSING_SECONDS

    def _was_read(self) -> bool:
        return self.served and any(scope.synced for scope in self.all_scopes)

    def mark_unserved(self) -> None:
        """Note that the API server does not know the kind: there is nothing of it."""
        self._set_served(False)
        self.tell(self.store.clear())
        for scope in self.scopes:
            self.mark_synced(scope)

    def _set_served(self, served: bool) -> None:
        if self.served is served:
            return
        self.served = served
        for handler in self._served_handlers:
            handler()

    def swept(self, objects: int) -> None:
        """Note changes that no event had told of."""
        if self._metrics is not None:
            self._metrics.swept(objects)

    def tell(self, changes: Sequence[Change], origin: Origin | None = None) -> None:
        """Tell the handlers of changes of the store."""
        if self._metrics is not None and changes:
            self._metrics.set_objects(len(self.store))
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
    """Feed informers until told to stop.

    A source must deliver each object that exists at least once, each later change at least once
    and in order, and may lose deletions that happen while it is disconnected.
    """

    async def run(self, informers: Sequence[Informer], stop: asyncio.Event) -> None:
        """Feed the informers until `stop` is set.

        Raises:
            Exception: The source cannot continue; the process must end and be started again.
        """
