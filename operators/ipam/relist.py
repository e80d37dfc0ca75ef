"""When to list objects again that a finalizer waits for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from libs.common.kinds import Kind, Manifest, key_of
from libs.common.runtime import Context

_RELIST_SECONDS: Final = 1.0


def find_relist_delay(ctx: Context, listed: Iterable[tuple[Kind, Manifest]]) -> float | None:
    """Return the seconds until listed objects are listed again; None to wait for their events.

    The cache may be ahead of a listing. Then it has processed the event of the deletion already,
    and no further event comes.
    """
    is_ahead = any(ctx.get(kind, key_of(manifest)) is None for kind, manifest in listed)
    return _RELIST_SECONDS if is_ahead else None
