"""Served: wait until the API server serves the watched kinds."""

from __future__ import annotations

from typing import Final

import structlog

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.errors import SlipwayError
from libs.common.runtime.cache import Cache
from libs.common.runtime.informer import Informer

log = structlog.get_logger(__name__)

_POLL_SECONDS: Final = 2.0


async def wait_served(client: Client, cache: Cache, clock: Clock) -> None:
    """Wait until all kinds of a cache are served: CRDs may be installed after the operator."""
    waiting = False
    while True:
        missing = [each.kind for each in cache if not await _is_served(client, each)]
        if not missing:
            return
        if not waiting:
            log.warning("Waiting for kinds to be served", kinds=[str(kind) for kind in missing])
            waiting = True
        await clock.sleep(_POLL_SECONDS)


async def _is_served(client: Client, informer: Informer) -> bool:
    if informer.optional:
        return True
    try:
        return await client.serves(informer.kind)
    except SlipwayError as err:
        log.warning("Waiting for the API server", error=str(err))
        return False
