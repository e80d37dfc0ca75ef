"""Reflector: list and watch, without anything between the API server and the store.

It is the source for kinds with thousands of objects. It knows when a listing is complete, so the
next listing finds deletions in a gap, and a store is synced as soon as the first listing is
complete. `./dev bench` compares its cost with kopf's.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Final

import structlog

from libs.common.client import Client
from libs.common.clock import Clock, SystemClock
from libs.common.errors import (
    ApiError,
    Expired,
    Forbidden,
    NotFound,
    ServerError,
    SlipwayError,
    TooManyRequests,
    Unreachable,
)
from libs.common.kinds import version_text
from libs.common.runtime.informer import Informer, run_in_scopes
from libs.common.runtime.listing import check_storage, list_scope
from libs.common.runtime.scope import Scope
from libs.common.runtime.streams import (
    RECONNECT,
    SHORT_STREAM_SECONDS,
    STREAM_SECONDS,
    choose_stream_seconds,
)

log = structlog.get_logger(__name__)

_RELIST: Final = 5
"""Number of successive failures (a few seconds) after which the version may be the cause."""
_LASTING_SECONDS: Final = 10.0
"""An attempt to watch that breaks after this time counts as a first failure: even if the server did
not respond at all, attempts are this far apart."""


class Reflector:
    """An event source that lists and watches.

    Args:
        client: Client of the API server.
        clock: Time source of the back-off.
        rng: Source of jitter.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Initialize; nothing is sent before `run`."""
        self._client = client
        self._clock = clock or SystemClock()
        self._rng = rng

    async def run(self, informers: Sequence[Informer], stop: asyncio.Event) -> None:
        """Feed the informers until `stop` is set."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(run_in_scopes(informer, partial(self._follow, informer)))
                for informer in informers
            ]
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def _follow(self, informer: Informer, scope: Scope) -> None:
        failures = 0
        version = ""
        broken = False
        while True:
            opened = math.inf
            try:
                if not version:
                    version = await list_scope(self._client, informer, scope.namespace)
                elif broken:
                    await check_storage(self._client, informer, scope.namespace)
                opened, received, broken = self._clock.monotonic(), False, True
                stream = self._watch(informer, scope.namespace, version)
                async with contextlib.aclosing(stream):
                    async for seen in stream:
                        version, failures, received = seen or version, 0, True
                # The server accepted the watch, even if nothing happened.
                informer.mark_alive(scope.namespace)
                lasted = self._clock.monotonic() - opened
                broken = lasted < STREAM_SECONDS
                if lasted >= SHORT_STREAM_SECONDS:
                    failures = 0
                elif not received:
                    # There must be a pause if the server ends each stream immediately.
                    failures += 1
                    await self._clock.sleep(self._delay(failures))
            except Expired:
                log.info("Listing again", resource=informer.kind.resource, reason="expired")
                version = ""
                failures += 1
                if failures > 1:
                    await self._clock.sleep(self._delay(failures))
            except SlipwayError as err:
                lasted = self._clock.monotonic() - opened
                if isinstance(err, Unreachable) and lasted >= _LASTING_SECONDS:
                    # Of a quiet kind, a stream may get no event before a proxy closes it as idle.
                    failures = 0
                failures += 1
                delay = self._delay(failures)
                await self._note_failure(informer, scope, err)
                _report(informer, scope, err, delay)
                if _needs_listing(err, failures):
                    version = ""
                await self._clock.sleep(delay)

    async def _note_failure(self, informer: Informer, scope: Scope, err: SlipwayError) -> None:
        down = informer.note_failure(scope.namespace, err) and isinstance(err, ServerError)
        if (
            informer.optional
            and (down or isinstance(err, NotFound))
            and await self._is_missing(informer, down=down)
        ):
            informer.mark_unserved()

    async def _is_missing(self, informer: Informer, *, down: bool) -> bool:
        """Check with discovery whether the kind was removed: one 404 proves nothing.

        If the server of an aggregated API is down, discovery fails as well, for its group only.
        """
        try:
            served = await self._client.serves(informer.kind)
        except ServerError:
            return down
        except SlipwayError:
            return False
        return not served and informer.note_missing()

    async def _watch(self, informer: Informer, scope: str, version: str) -> AsyncGenerator[str]:
        """Follow one stream, and yield the version from which to resume after each event."""
        events = self._client.watch(
            informer.kind,
            scope,
            resource_version=version,
            label_selector=informer.label_selector,
            field_selector=informer.field_selector,
            metadata_only=informer.metadata_only,
            timeout_seconds=choose_stream_seconds(self._rng()),
        )
        async with contextlib.aclosing(events):
            async for event in events:
                if event.type == "BOOKMARK":
                    informer.mark_alive(scope)
                elif event.type == "DELETED":
                    informer.remove(event.object)
                else:
                    informer.put(event.object)
                yield version_text(event.object)

    def _delay(self, failures: int) -> float:
        return RECONNECT.delay(failures, self._rng())


def _needs_listing(err: SlipwayError, failures: int) -> bool:
    """Return whether to list again; an unavailable or busy server must not get a list request."""
    if isinstance(err, Forbidden | NotFound):
        return True
    refused = isinstance(err, ApiError) and not isinstance(err, TooManyRequests)
    return refused and failures % _RELIST == 0


def _report(informer: Informer, scope: Scope, err: SlipwayError, delay: float) -> None:
    if not informer.served or scope.blocked:
        # The kind is not installed, which is not an error; retry in case it is installed later. A
        # namespace that cannot be read was logged once, and a metric shows it from then on.
        return
    log.warning(
        "Watch failed, waiting to retry",
        resource=informer.kind.resource,
        namespace=str(scope),
        seconds=round(delay, 1),
        error=str(err),
    )
