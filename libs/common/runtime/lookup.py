"""Lookup: what is really there after a write whose answer was lost."""

from __future__ import annotations

from libs.common.client import Client
from libs.common.errors import NotFound
from libs.common.kinds import Key, Kind, uid_of
from libs.common.runtime.cache import Cache


async def look_up(client: Client, cache: Cache, kind: Kind, key: Key) -> None:
    """Put into the cache what is really there after a write that got no response.

    Raises:
        ApiError: The server cannot be asked now.
    """
    informer = cache.find(kind)
    if informer is None:
        return
    # Only what existed before the look can be missed by it: a write that is still on its way may
    # make a new object meanwhile, and its event may be here before the response.
    held = informer.store.get(key)
    try:
        live = await client.get(kind, key)
    except NotFound:
        if held is not None:
            informer.deleted(key, uid_of(held))
        return
    informer.wrote(live)
