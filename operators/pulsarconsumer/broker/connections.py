"""Connections to admin APIs, which are kept open between queries.

Connections are shared only by queries with the same address and the same login. So no connection is
ever used with the credentials, the client certificate or the trusted authorities of another login.
If a Secret changes, it is another login.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from libs.common.clock import Clock, SystemClock
from operators.pulsarconsumer.broker.addresses import ConfinedResolver
from operators.pulsarconsumer.broker.login import Login

IDLE_SECONDS: Final = 25.0
"""Seconds after which unused connections are closed; brokers close them after 30 s."""


@dataclass(slots=True)
class _Held:
    session: aiohttp.ClientSession
    users: int = 0
    until: float = 0.0


class Connections:
    """A pool of connections by address and login.

    Args:
        allow_loopback: Whether connections to this machine itself are allowed.
        clock: Time source.
    """

    def __init__(self, *, allow_loopback: bool = False, clock: Clock | None = None) -> None:
        """Start without connections."""
        self._allow_loopback = allow_loopback
        self._clock = clock or SystemClock()
        # Those that were used last are at the end.
        self._held: dict[tuple[str, Login], _Held] = {}

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all."""
        await self.close()

    @asynccontextmanager
    async def lease(self, address: str, login: Login) -> AsyncIterator[aiohttp.ClientSession]:
        """Lease connections to an address that only users of the same login share.

        Raises:
            LoginInvalid: A certificate or key of the login is invalid.
        """
        key = (address, login)
        held = self._held.pop(key, None) or _Held(self._open(address, login))
        self._held[key] = held
        held.users += 1
        try:
            yield held.session
        finally:
            held.users -= 1
            held.until = self._clock.monotonic() + IDLE_SECONDS
            await self._expire()

    async def close(self) -> None:
        """Close all."""
        sessions = [held.session for held in self._held.values()]
        self._held.clear()
        for session in sessions:
            await session.close()

    def _open(self, address: str, login: Login) -> aiohttp.ClientSession:
        tls = login.tls() if address.startswith("https") or login.key_file else True
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=ConfinedResolver(allow_loopback=self._allow_loopback),
                use_dns_cache=False,
                ssl=tls,
                # Idle sockets are closed even if the session is never used again.
                keepalive_timeout=IDLE_SECONDS,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def _expire(self) -> None:
        """Drop sessions that are no longer used, together with their credentials."""
        while self._held:
            key, held = next(iter(self._held.items()))
            if held.users or self._clock.monotonic() < held.until:
                return
            del self._held[key]
            await held.session.close()
