"""Namespaces: the watched namespaces, if a label selector chooses them.

The selected namespaces are listed before any other kind, and change at run time. A namespace that
loses its label is no longer watched: its objects are removed from the caches, and keep finalizers
of the operator until the label is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.kinds import NAMESPACE
from libs.common.runtime.cache import Cache
from libs.common.runtime.informer import Informer, Origin
from libs.common.runtime.reflector import Reflector
from libs.common.runtime.store import Change

log = structlog.get_logger(__name__)


class NamespaceSelection:
    """Keeps the scopes of a cache in sync with a label selector on namespaces.

    Args:
        client: Client of the API server.
        cache: Cache whose kinds are watched in the selected namespaces.
        selector: Label selector.
        clock: Time source.
        on_change: Called after namespaces were added or removed.
        rng: Source of jitter.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        selector: str,
        *,
        clock: Clock,
        on_change: Callable[[], object],
        rng: Callable[[], float],
    ) -> None:
        """Initialize; nothing is watched before `run`."""
        self._informer = Informer(
            NAMESPACE, label_selector=selector, source="reflector", clock=clock
        )
        self._informer.add_handler(self._note)
        self._reflector = Reflector(client, clock=clock, rng=rng)
        self._cache = cache
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._selected: tuple[str, ...] | None = None
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Follow the selected namespaces until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run([self._informer], asyncio.Event()))
            await self._informer.wait_synced()
            while True:
                self._changed.clear()
                self._select(sorted(key.name for key in self._informer.store))
                self.ready.set()
                await self._changed.wait()

    def _note(self, change: Change, _: Origin | None) -> None:
        # A namespace that is being deleted is watched until it no longer exists, because its
        # objects must be finalized.
        if change.old is None or change.new is None:
            self._changed.set()

    def _select(self, names: Sequence[str]) -> None:
        if self._selected == tuple(names):
            return
        before = set(self._selected or ())
        self._selected = tuple(names)
        added, removed = sorted(set(names) - before), sorted(before - set(names))
        log.info("Selected namespaces", total=len(names), added=added[:10], removed=removed[:10])
        for informer in self._cache:
            if informer.kind.namespaced:
                informer.watch_namespaces(names)
        self._on_change()
