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
from typing import Literal, Protocol

import structlog

from libs.common.clock import Clock, SystemClock
from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of, version_of
from libs.common.metrics import CacheMetrics
from libs.common.runtime.store import Change, Store, Transform, strip_noise

log = structlog.get_logger(__name__)


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
        transform: Reduces each object before it is kept.
        source: Which event source feeds it.
        optional: Whether the operator works where the kind is not served.
        clock: Time source.
        metrics: Told of sizes and events.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        namespaces: Sequence[str] = (),
        label_selector: str = "",
        transform: Transform = strip_noise,
        source: SourceName = "kopf",
        optional: bool = False,
        clock: Clock | None = None,
        metrics: CacheMetrics | None = None,
    ) -> None:
        """Start with an empty store that is not synced."""
        self.kind = kind
        self.namespaces = tuple(namespaces) if kind.namespaced else ()
        self.label_selector = label_selector
        self.source = source
        self.optional = optional
        self.store = Store(kind, transform)
        self.relisted = asyncio.Event()
        self.served = True
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._handlers: list[Handler] = []
        self._served_handlers: list[Callable[[], None]] = []
        self._pending = set(self.scopes)
        self._synced = asyncio.Event()
        self._heard_at = self._clock.monotonic()
        self._writing: dict[Key, tuple[Origin, str]] = {}

    @property
    def scopes(self) -> tuple[str, ...]:
        """Namespaces to list and watch one by one; the empty one stands for all."""
        return self.namespaces or ("",)

    @property
    def synced(self) -> bool:
        """Whether the store has held a complete listing of each scope."""
        return self._synced.is_set()

    @property
    def silence(self) -> float:
        """Seconds since the source was last heard of."""
        return self._clock.monotonic() - self._heard_at

    async def wait_synced(self) -> None:
        """Wait for the first complete listing of each scope."""
        await self._synced.wait()

    def add_handler(self, handler: Handler) -> None:
        """Tell a handler of each change from now on."""
        self._handlers.append(handler)

    def add_served_handler(self, handler: Callable[[], None]) -> None:
        """Call a handler whenever the kind comes to be served, or is served no more.

        That there is a kind now, with no object yet, is told by no change of an object.
        """
        self._served_handlers.append(handler)

    def heard(self) -> None:
        """Note that the source is alive, by an event, a bookmark or a listing."""
        self._set_served(True)
        self._heard_at = self._clock.monotonic()
        if self._metrics is not None:
            self._metrics.event_seen()

    def put(self, manifest: Manifest) -> Change | None:
        """Take in the event that an object exists."""
        self.heard()
        change = self.store.put(manifest)
        if change is not None:
            self._tell([change], self._find_writer(change))
        return change

    def remove(self, manifest: Manifest) -> Change | None:
        """Take in the event that an object is gone, or is no longer selected."""
        self.heard()
        change = self.store.remove(key_of(manifest), uid_of(manifest), version_of(manifest))
        if change is not None:
            self._tell([change], self._find_writer(change))
        return change

    @contextmanager
    def writing(self, key: Key, origin: Origin, uid: str = "") -> Iterator[None]:
        """Expect the event of a write of ours, which may be here before the answer.

        Told to the pass that makes it, the event would ask for another pass at once: whoever makes
        something, fails, and takes it back would do so without end, whatever its back-off.

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
        """Return the pass that is known to make a change of which no answer was heard yet."""
        origin, uid = self._writing.get(change.key, (None, "")) if self._writing else (None, "")
        if change.old is None:
            return None if uid else origin
        goes = change.new is None or (is_deleting(change.new) and not is_deleting(change.old))
        return origin if goes and uid == uid_of(change.old) else None

    def wrote(self, manifest: Manifest, origin: Origin | None = None) -> Change | None:
        """Take in the answer to a request of ours, and tell everybody but who made it.

        The event of a write comes later and is no change any more, so this is the moment for the
        other controllers to hear of it.

        Args:
            manifest: Object as the server answered.
            origin: The pass that wrote; None when the answer may show what others did, so that
                the pass has to be told too.
        """
        change = self.store.put(manifest)
        self._tell([change] if change else [], origin)
        return change

    def deleted(self, key: Key, uid: str, origin: Origin | None = None) -> None:
        """Take in that a deletion of ours was carried out at once."""
        change = self.store.remove(key, uid)
        self._tell([change] if change else [], origin)

    def vanished(self, key: Key, uid: str, version: int | None = None) -> Change | None:
        """Take in that an incarnation is gone, seen by a read or in a listing.

        Args:
            key: Where it was.
            uid: Which incarnation.
            version: Resource version of the listing that lacks it: it may be there again later,
                when it had only lost the selected label. None means gone for good.
        """
        change = self.store.remove(key, uid, version)
        self._tell([change] if change else [])
        return change

    def replace(self, items: Iterable[Manifest], version: int, namespace: str = "") -> None:
        """Take in a complete listing of one scope and mark it synced."""
        self.heard()
        changes = self.store.replace(items, version, namespace or None)
        self._tell(changes)
        self.mark_synced(namespace)

    def mark_unserved(self) -> None:
        """Note that the API server does not know the kind: there is nothing of it."""
        self._set_served(False)
        self._tell(self.store.clear())
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

    def mark_synced(self, namespace: str = "") -> None:
        """Note that everything of one scope has been seen once."""
        self._pending.discard(namespace)
        if not self._pending:
            self._synced.set()

    def _tell(self, changes: Sequence[Change], origin: Origin | None = None) -> None:
        if self._metrics is not None and changes:
            self._metrics.set_objects(len(self.store))
        for change in changes:
            for handler in self._handlers:
                try:
                    handler(change, origin)
                except Exception:
                    # One object that a mapper chokes on must not hide the others.
                    log.exception(
                        "Losing a change", resource=str(self.kind), object=str(change.key)
                    )


class EventSource(Protocol):
    """Feed informers until told to stop.

    A source must deliver each object that exists at least once, each later change at least once
    and in order, and may lose deletions that happen while it is disconnected.
    """

    async def run(self, informers: Sequence[Informer], stop: asyncio.Event) -> None:
        """Feed the informers until `stop` is set.

        Raises:
            Exception: The source cannot go on; the process must end and be started again.
        """
