"""TLS contexts that follow the files they are made from."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Self

import structlog

from libs.common.errors import ConfigError

log = structlog.get_logger(__name__)


class RenewingContext(ssl.SSLContext):
    """A TLS context that loads its files again when they have changed, for the next connection.

    asyncio and uvloop make a connection by `wrap_bio`. Each version of the files has a context of
    its own: what is trusted no longer is gone, and files of which half is written change nothing.

    Args:
        build: Builds a context from the files of now.
        find: Names the files of now.
    """

    def __new__(cls, *_: object) -> Self:
        """Make the outer context, which trusts nobody."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(
        self, build: Callable[[], ssl.SSLContext], find: Callable[[], Iterable[str]]
    ) -> None:
        """Load the files for the first time; raises what `build` raises."""
        self._build = build
        self._find = find
        self._seen = self._look()
        self._inner = build()

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection with the files of now, or the last ones that could be loaded."""
        # Looked at before they are loaded: what changes meanwhile is loaded once more.
        if (seen := self._look()) != self._seen:
            try:
                self._inner = self._build()
                self._seen = seen
            except ConfigError as err:
                log.warning("Keeping the certificates", error=str(err))
            else:
                log.info("Loading certificates that were renewed")
        return self._inner.wrap_bio(*args, **options)

    def _look(self) -> list[tuple[object, ...]]:
        return [_look_at(path) for path in self._find()]


def _look_at(path: str) -> tuple[object, ...]:
    """Tell one version of a file from the next; a Secret that is mounted is a link to a file."""
    try:
        found = os.stat(path)
    except OSError:
        return (path,)
    return (path, found.st_ino, found.st_size, found.st_mtime_ns)
