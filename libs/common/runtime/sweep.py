"""Sweep: hold a store against the API server, for sources that can lose deletions.

A sweep lists metadata alone. What the store held before the listing and the listing does not have
is gone, and the handlers are told so. What the listing has and the store has not, or has in an
older version, is waited for a moment, then read and put in. Sweeps run at the start (for a source
without listings the store is not synced until then), right after such a source listed again, when a
process begins to lead, and from time to time, since a defect that nobody knows of must not be for
ever.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from libs.common.client import Client
from libs.common.clock import Clock, SystemClock
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import Key, key_of, uid_of, version_of
from libs.common.runtime.informer import Informer
from libs.common.runtime.waiting import wait_first

log = structlog.get_logger(__name__)

_SYNC_POLL: Final = 0.05
_GRACE: Final = 2.0
"""Seconds that a source has to deliver what the listing named, before it is read one by one."""
_RETRY: Final = 5.0


class _Listed(NamedTuple):
    key: Key
    version: int


class StorageSetBack(Exception):
    """The storage of the API server was restored to an earlier state.

    Versions order what a store takes in, so it would ignore all that is told until they are as high
    as they were. Only a process that begins anew sees what is.
    """


class Sweeper:
    """Keep the stores of lossy sources honest.

    Args:
        client: Connection to the API server.
        period: Seconds between sweeps of one kind, give or take a tenth; 0 leaves only those that
            a relisting asks for.
        settle: Seconds to let a source finish its relisting before a sweep.
        clock: Time source.
        rng: Source of jitter.
    """

    def __init__(
        self,
        client: Client,
        *,
        period: float = 600.0,
        settle: float = 2.0,
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Prepare; nothing is sent before `keep`."""
        self._client = client
        self._period = period
        self._settle = settle
        self._clock = clock or SystemClock()
        self._rng = rng

    async def keep(self, informer: Informer) -> None:
        """Sync an informer, then sweep it for ever; a failing sweep is tried again.

        An informer whose source lists is synced by that, and swept from then on.
        """
        if informer.source == "reflector":
            await informer.wait_synced()
            await self._wait(informer)
        while True:
            if not informer.served:
                await self._wait(informer)
                continue
            try:
                await self.sweep(informer)
            except SlipwayError as err:
                log.warning(
                    "Waiting to sweep again", resource=informer.kind.resource, error=str(err)
                )
                await self._clock.sleep(_RETRY)
                continue
            for scope in informer.scopes:
                informer.mark_synced(scope)
            await self._wait(informer)

    async def sweep(self, informer: Informer) -> int:
        """Hold the store against one listing.

        Returns:
            Number of changes that no event had told of.

        Raises:
            StorageSetBack: The listing is older than what was seen before it began.
        """
        filled, swept = informer.synced, 0
        for scope in informer.scopes:
            before, newest = informer.store.uids(scope or None), informer.store.newest
            listing = await self._client.list(
                informer.kind, scope, label_selector=informer.label_selector, metadata_only=True
            )
            alive = {
                uid_of(item): _Listed(key_of(item), version_of(item)) for item in listing.items
            }
            version = int(listing.resource_version or 0)
            if 0 < version < newest:
                raise StorageSetBack(
                    f"{informer.kind.resource}: the API server is at version {version}, but "
                    f"{newest} was seen; its storage was restored, so the caches begin anew"
                )
            for uid, key in before.items():
                if uid not in alive and informer.vanished(key, uid, version) is not None:
                    swept += 1
            fetched = await self._fetch_behind(informer, alive)
            # A source that fills the cache for the first time is late and has missed nothing.
            swept += fetched if filled else 0
        if swept:
            log.warning("Found missed changes", resource=informer.kind.resource, objects=swept)
            informer.swept(swept)
        if informer.source == "reflector":
            # It never gives up, but not every server sends it bookmarks. kopf may be deaf, which no
            # sweep is to hide: only its own streams tell of it.
            informer.heard()
        return swept

    async def _fetch_behind(self, informer: Informer, alive: dict[str, _Listed]) -> int:
        """Read what the source does not deliver in time; return how much of it was news."""
        fetched = 0
        behind = _behind(informer, alive)
        waited = 0.0
        while behind and waited < _GRACE:
            await self._clock.sleep(_SYNC_POLL)
            waited += _SYNC_POLL
            behind = _behind(informer, behind)
        for uid, listed in behind.items():
            if _shows(informer, uid, listed):
                continue  # It came while the others were read.
            with contextlib.suppress(NotFound):
                manifest = await self._client.get(informer.kind, listed.key)
                if uid_of(manifest) == uid and informer.wrote(manifest) is not None:
                    fetched += 1
        return fetched

    async def _wait(self, informer: Informer) -> None:
        """Wait for the next period, or until the source listed again."""
        pause = self._period * (0.9 + 0.2 * self._rng())
        pauses = [self._clock.sleep(pause)] if pause else []
        await wait_first(informer.relisted.wait(), *pauses)
        if informer.relisted.is_set():
            await self._clock.sleep(self._settle)
            informer.relisted.clear()


def _behind(informer: Informer, listed: dict[str, _Listed]) -> dict[str, _Listed]:
    """Return what the store does not have, or has in an older version than was listed."""
    return {uid: entry for uid, entry in listed.items() if not _shows(informer, uid, entry)}


def _shows(informer: Informer, uid: str, listed: _Listed) -> bool:
    held = informer.store.get(listed.key)
    if held is None:
        return False
    # Another incarnation under the same key is newer than the listing.
    return uid_of(held) != uid or version_of(held) >= listed.version
