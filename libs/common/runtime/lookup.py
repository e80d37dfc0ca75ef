"""Lookup: the actual state of an object after a write whose response was lost."""

from __future__ import annotations

from libs.common.client import Client
from libs.common.errors import NotFound
from libs.common.kinds import Key, Kind, uid_of
from libs.common.runtime.cache import Cache


async def look_up(client: Client, cache: Cache, kind: Kind, key: Key) -> None:
    """Read an object after a write without a response, and update the cache.

    Raises:
        ApiError: The server cannot be reached now.
    """
    informer = cache.find(kind)
    if informer is None:
        return
    # Only an object that existed before the read can be missing afterwards: a delayed write may
    # create a new object in the meantime, and its event may arrive before the response.
    held = informer.store.get(key)
    try:
        live = await client.get(kind, key)
    except NotFound:
        if held is not None:
            informer.deleted(key, uid_of(held))
        return
    informer.wrote(live)
