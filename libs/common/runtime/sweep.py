"""Sweep: compare the stores with the API server, because a watch can lose events unnoticed.

A sweep lists the metadata of one scope. Objects that the store had before the listing and that the
listing lacks were deleted; handlers are notified. For objects that the store lacks or has in an
older version, the sweep waits a moment, then reads and stores them. Sweeps run when a process
becomes the leader, and periodically. Each scope is swept separately: an unreadable scope is retried
after growing pauses and does not delay others.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import structlog

from libs.common.client import Client
from libs.common.clock import Clock, SystemClock
from libs.common.errors import ApiError, NotFound, SlipwayError
from libs.common.kinds import Key, identity_of, is_outdated, key_of, parse_version, version_text
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.informer import Informer, run_in_scopes
from libs.common.runtime.listing import (
    StorageRolledBack,
    check_object,
    check_version,
    list_scope,
)
from libs.common.runtime.scope import Scope

log = structlog.get_logger(__name__)

_SYNC_POLL: Final = 0.05
_GRACE: Final = 2.0
"""Seconds that a source has to deliver the listed objects before they are read one by one."""
_MANY: Final = 200
"""Number of missing objects from which they are listed again, page by page, instead of read one by
one."""
_CONCURRENT: Final = 8
"""Number of scopes that are listed concurrently, over all kinds."""
_RETRY: Final = BackoffPolicy(5.0, 600.0)
_CATCH_UP_RETRY: Final = 1.0
_CATCH_UP_SECONDS: Final = 30.0
"""Time for which a new leader waits for a scope that the API server fails to list, if it can list
others. An API server that restarts is back sooner."""


class _Listed(NamedTuple):
    key: Key
    version: str


class Sweeper:
    """Compares stores with the API server.

    Args:
        client: Client of the API server.
        period: Seconds between sweeps of one scope, with a jitter of 10 %; 0 disables sweeps.
        clock: Time source.
        rng: Source of jitter.
    """

    def __init__(
        self,
        client: Client,
        *,
        period: float = 600.0,
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Initialize; nothing is sent before `keep`."""
        self._client = client
        self._period = period
        self._clock = clock or SystemClock()
        self._rng = rng
        self._semaphore = asyncio.Semaphore(_CONCURRENT)

    async def keep(self, informer: Informer) -> None:
        """Sweep an informer periodically, beginning one period after its first listing."""
        await informer.wait_synced()
        await run_in_scopes(informer, partial(self._keep_scope, informer))

    async def sweep(self, informer: Informer) -> int:
        """Sweep all scopes that can be read.

        Returns:
            Number of changes without an event.

        Raises:
            SlipwayError: A scope could not be swept; the others were.
            StorageRolledBack: The listing is older than the newest version seen before it began.
        """
        readable = [scope for scope in informer.all_scopes if not scope.blocked]
        sweeps = (self.sweep_scope(informer, scope) for scope in readable)
        results = await asyncio.gather(*sweeps, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(result for result in results if isinstance(result, int))

    async def catch_up(self, informer: Informer) -> None:
        """Sweep each scope once, with retries, except scopes that stay unreadable.

        If the API server keeps failing to list one scope and can list another one, the cause lies
        in the scope, such as an object that a conversion webhook rejects. It is blocked, so that
        the other namespaces are reconciled; the periodic sweeps retry it.

        Raises:
            StorageRolledBack: A listing is older than the newest version seen before it began.
        """
        any_swept = asyncio.Event()  # Set when at least one scope has been swept.
        async with asyncio.TaskGroup() as group:
            for scope in informer.all_scopes:
                group.create_task(self._catch_up_scope(informer, scope, any_swept))

    async def sweep_scope(self, informer: Informer, scope: Scope) -> int:
        """Compare one scope with one listing; see `sweep`."""
        store, namespace = informer.store, scope.namespace
        filled = informer.synced
        async with self._semaphore:
            before, newest = store.uids(namespace or None), store.newest
            alive: dict[str, _Listed] = {}
            version = 0
            async for page in self._client.pages(
                informer.kind,
                namespace,
                label_selector=informer.label_selector,
                field_selector=informer.field_selector,
                metadata_only=True,
            ):
                if page.first:
                    alive.clear()
                version = parse_version(page.resource_version)
                for item in page.items:
                    check_object(store, item, version)
                    alive[identity_of(item)] = _Listed(key_of(item), version_text(item))
        check_version(informer.kind, version, newest)
        swept = 0
        for uid, key in before.items():
            if uid not in alive and informer.observe_deleted(key, uid, version) is not None:
                swept += 1
        fetched = await self._fetch_outdated(informer, scope, alive)
        # A source that is still filling the cache is late but has missed nothing.
        swept += fetched if filled else 0
        if swept:
            log.warning("Found missed changes", resource=informer.kind.resource, objects=swept)
            informer.swept(swept)
        if informer.source == "reflector":
            # A reflector never stops, but not every server sends bookmarks to it, so a sweep counts
            # as a sign of life. kopf may have stopped watching, which a sweep must not hide: only
            # its own streams prove that it is alive.
            informer.mark_alive(namespace)
        return swept

    async def _keep_scope(self, informer: Informer, scope: Scope) -> None:
        failures = 0
        while True:
            # The source retries a blocked scope as well, but its watch may still work.
            if failures or scope.blocked:
                await self._clock.sleep(_RETRY.delay(failures or 1, self._rng()))
            elif self._period:
                await self._clock.sleep(self._period * (0.9 + 0.2 * self._rng()))
            else:
                return
            if not informer.served or not (scope.synced or scope.blocked):
                continue
            try:
                await self.sweep_scope(informer, scope)
            except SlipwayError as err:
                failures += 1
                if not informer.note_failure(scope.namespace, err):
                    name = {"resource": informer.kind.resource, "namespace": str(scope)}
                    log.warning(
                        "Cannot compare the cache with the API server, retrying later",
                        **name,
                        error=str(err),
                    )
            else:
                failures = 0
                if scope.synced:
                    informer.mark_synced(scope.namespace)

    async def _catch_up_scope(
        self, informer: Informer, scope: Scope, any_swept: asyncio.Event
    ) -> None:
        began = self._clock.monotonic()
        while informer.served and not scope.blocked:
            try:
                await self.sweep_scope(informer, scope)
            except SlipwayError as err:
                if informer.note_failure(scope.namespace, err):
                    return
                waited = self._clock.monotonic() - began
                if isinstance(err, ApiError) and any_swept.is_set() and waited >= _CATCH_UP_SECONDS:
                    informer.block(scope.namespace, err)
                    return
                name = {"resource": informer.kind.resource, "namespace": str(scope)}
                log.warning(
                    "Cannot compare the cache with the API server, retrying", **name, error=str(err)
                )
                await self._clock.sleep(_CATCH_UP_RETRY)
            else:
                any_swept.set()
                return

    async def _fetch_outdated(
        self, informer: Informer, scope: Scope, alive: dict[str, _Listed]
    ) -> int:
        """Read objects that the source does not deliver in time; return the number of changes."""
        fetched = 0
        outdated = await self._wait_for_source(informer, alive)
        if not outdated:
            return 0
        async with self._semaphore:
            if len(outdated) > _MANY:
                await list_scope(self._client, informer, scope.namespace)
                return len(outdated)
            for uid, listed in outdated.items():
                if _is_current(informer, uid, listed):
                    continue  # The source delivered it while the others were read.
                gone = informer.store.is_gone(uid)
                with contextlib.suppress(NotFound):
                    manifest = await self._client.get(informer.kind, listed.key)
                    if identity_of(manifest) == uid and gone:
                        raise StorageRolledBack(
                            informer.kind, f"{listed.key} exists", "its deletion"
                        )
                    if identity_of(manifest) == uid and informer.wrote(manifest) is not None:
                        fetched += 1
        return fetched

    async def _wait_for_source(
        self, informer: Informer, alive: dict[str, _Listed]
    ) -> dict[str, _Listed]:
        """Wait while the source delivers, and a moment longer; return the missing objects."""
        outdated = _find_outdated(informer, alive)
        waited = 0.0
        while outdated and waited < _GRACE:
            await self._clock.sleep(_SYNC_POLL)
            before, outdated = len(outdated), _find_outdated(informer, outdated)
            waited = waited + _SYNC_POLL if len(outdated) == before else 0.0
        return outdated


def _find_outdated(informer: Informer, listed: dict[str, _Listed]) -> dict[str, _Listed]:
    """Return objects that the store lacks or has in an older version than listed."""
    return {uid: entry for uid, entry in listed.items() if not _is_current(informer, uid, entry)}


def _is_current(informer: Informer, uid: str, listed: _Listed) -> bool:
    held = informer.store.get(listed.key)
    if held is None:
        return False
    # Another object with the same key is newer than the listing.
    return identity_of(held) != uid or not is_outdated(version_text(held), listed.version)
