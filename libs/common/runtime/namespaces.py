"""Namespaces: the watched namespaces, if a label selector chooses them.

The selected namespaces are listed before any other kind, and change at run time. A namespace that
loses its label is no longer watched: its objects are removed from the caches, and keep finalizers
of the operator until the label is back.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.kinds import NAMESPACE
from libs.common.runtime.cache import Cache
from libs.common.runtime.informer import Informer, Origin
from libs.common.runtime.reflector import Reflector
from libs.common.runtime.store import Change

log = structlog.get_logger(__name__)

_OTHER_FILES: Final = 100
"""Open files besides the watches: requests, the Lease, probes, libraries."""


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
        before = set(self._selected or ())
        if excess := find_excess(self._cache, len(names)):
            names = sorted(sorted(names, key=lambda name: name not in before)[: -excess[0]])
            log.error("Cannot watch all selected namespaces", left_out=excess[0], reason=excess[1])
        if self._selected == tuple(names):
            return
        self._selected = tuple(names)
        added, removed = sorted(set(names) - before), sorted(before - set(names))
        log.info("Selected namespaces", total=len(names), added=added[:10], removed=removed[:10])
        for informer in self._cache:
            if informer.kind.namespaced:
                informer.watch_namespaces(names)
        self._on_change()


def find_excess(cache: Cache, namespaces: int) -> tuple[int, str] | None:
    """Return how many of some namespaces exceed the limit of open files, and why; None if none.

    Each kind has one watch for each namespace, and each watch has a connection.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    kinds = sum(informer.kind.namespaced for informer in cache)
    needed = namespaces * kinds + _OTHER_FILES
    if limit == resource.RLIM_INFINITY or needed <= limit:
        return None
    return -(-(needed - limit) // kinds), (
        f"{namespaces} namespaces with {kinds} watched kinds need {needed} open files, but the "
        f"limit is {limit}; raise it (ulimit -n), watch fewer namespaces, or watch the whole "
        "cluster"
    )
