"""TLS contexts that follow the files they are made from."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

import structlog

from libs.common.errors import ConfigError

log = structlog.get_logger(__name__)

SESSION_SECONDS: Final = 600.0
"""Seconds for which a TLS session is taken up again before both sides show certificates again."""


class RenewingContext(ssl.SSLContext):
    """A TLS context that loads its files again when they have changed, for the next connection.

    asyncio and uvloop make a connection by `wrap_bio`. Each version of the files has a context of
    its own: what is trusted no longer is gone, and files of which half is written change nothing.

    A connection takes up the TLS session of an earlier one, which spares the server a signature
    and us a chain of certificates: of a burst that opens 32 connections these are a sixth of the
    time. A session stands for who both sides were, so none outlives the files it was made with,
    nor `SESSION_SECONDS`. Connections are of one server, and of one thread.

    Args:
        build: Builds a context from the files of now.
        find: Names the files of now.
        clock: Tells the time of day, in seconds, as sessions do.
    """

    def __new__(cls, *_: object, **__: object) -> Self:
        """Make the outer context, which trusts nobody."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(
        self,
        build: Callable[[], ssl.SSLContext],
        find: Callable[[], Iterable[str]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Load the files for the first time; raises what `build` raises."""
        self._build = build
        self._find = find
        self._seen = self._look()
        self._inner = build()
        self._clock = clock
        self._last: ssl.SSLObject | None = None
        self._session: ssl.SSLSession | None = None

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection with the files of now, or the last ones that could be loaded."""
        self._renew()
        options["session"] = self._find_session()
        self._last = self._inner.wrap_bio(*args, **options)
        return self._last

    def _renew(self) -> None:
        # Looked at before they are loaded: what changes meanwhile is loaded again.
        if (seen := self._look()) != self._seen:
            try:
                self._inner = self._build()
                self._seen = seen
            except ConfigError as err:
                log.warning("Cannot reload the certificates, keeping the old ones", error=str(err))
            else:
                self._last = self._session = None
                log.info("Reloaded renewed certificates")

    def _find_session(self) -> ssl.SSLSession | None:
        """Return a session that a connection can take up; None for a handshake from the start."""
        # Its ticket comes with the first answer, so it is looked for when the next one begins. One
        # that was taken up itself is as old as the first of its line, and does not say so. A
        # connection that is still being made has no version, and cannot be asked for a session.
        last = self._last
        if last is not None and last.version() is not None and not last.session_reused:
            session = last.session
            if session is not None and session.has_ticket:
                self._last, self._session = None, session
        if self._session is not None and self._clock() - self._session.time > SESSION_SECONDS:
            self._session = None
        return self._session

    def _look(self) -> list[tuple[object, ...]]:
        return [_look_at(path) for path in self._find()]


def build_server_context(directory: str) -> ssl.SSLContext:
    """Build the TLS context of a server whose certificate may be renewed while it runs.

    Args:
        directory: Holds `tls.crt` and `tls.key`, as a mounted Secret of type kubernetes.io/tls
            does. Each new connection uses the files of that time; files that cannot be loaded
            leave the last certificate in use.

    Raises:
        ConfigError: The files cannot be loaded; the message names the directory.
    """
    paths = [os.path.join(directory, name) for name in ("tls.crt", "tls.key")]

    def look() -> list[tuple[object, ...]]:
        return [_look_at(path) for path in paths]

    def load() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(*paths)
        except (OSError, ssl.SSLError) as err:
            raise ConfigError(f"cannot load tls.crt and tls.key in {directory}: {err}") from err
        return context

    seen, current = look(), load()

    def choose(connection: ssl.SSLObject, _name: str | None, _outer: ssl.SSLContext) -> None:
        nonlocal seen, current
        if (found := look()) != seen:
            try:
                seen, current = found, load()
            except ConfigError as err:
                log.warning(
                    "Cannot reload the certificate of the server, keeping the old one",
                    error=str(err),
                )
            else:
                log.info("Loaded a renewed certificate of the server")
        connection.context = current

    # OpenSSL calls this for each connection, even if the client names no server.
    outer = load()
    outer.sni_callback = choose
    return outer


def _look_at(path: str) -> tuple[object, ...]:
    """Tell one version of a file from the next; a Secret that is mounted is a link to a file."""
    try:
        found = os.stat(path)
    except OSError:
        return (path,)
    return (path, found.st_ino, found.st_size, found.st_mtime_ns)
