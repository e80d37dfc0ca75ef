"""The interval of listing objects whose deletion a finalizer waits for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from libs.common.kinds import Kind, Manifest, key_of
from libs.common.runtime import Context

_RELIST_SECONDS: Final = 1.0


def find_relist_delay(ctx: Context, listed: Iterable[tuple[Kind, Manifest]]) -> float | None:
    """Return the seconds until objects must be listed again; None to wait for their events.

    The cache may be newer than the listing: if it has already processed the event of a deletion, no
    further event will trigger a reconcile.
    """
    is_ahead = any(ctx.get(kind, key_of(manifest)) is None for kind, manifest in listed)
    return _RELIST_SECONDS if is_ahead else None
