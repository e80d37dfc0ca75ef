"""HTTP sessions for kopf, which change some of its requests and hide some responses from it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, Protocol, Self

import aiohttp
import orjson
from yarl import URL

from libs.common.config import ConnectionConfig
from libs.common.runtime.light_kopf import kopf
from libs.common.runtime.streams import RECONNECT, ReconnectDelay, choose_stream_seconds

EXIT_SECONDS: Final = 5.0
REFUSED: Final = "refused with"
"""Message of the error that kopf gets for a refusal."""
_TLS_CLOSE_SECONDS: Final = 0.1
_NO_OBJECT: Final = "slipway.dev-lists-by-itself"
_GONE: Final = 410
_FOR_KOPF: Final = frozenset({401, _GONE, 429})
_TEXT_BYTES: Final = 512

type Pause = Callable[[float], Awaitable[object]]
"""Waits for some seconds in the calling loop."""


class Listener(Protocol):
    """A listener, called in kopf's thread, for lists and watches of watched kinds."""

    def concerns(self, path: str) -> bool:
        """Return whether a path belongs to a watched kind."""

    def succeeded(self, path: str, watching: bool) -> None:
        """Record that the path was listed, or that a watch of it began."""

    def failed(self, path: str, status: int, text: str) -> None:
        """Record that the API server refused the request."""


class Sessions:
    """The HTTP sessions that kopf uses.

    They replace kopf's own sessions, which support neither our TLS context nor a proxy, and which
    kopf leaks if it is stopped during discovery.

    Args:
        config: Address of the API server and credentials.
        listener: Called for each list and watch of a watched kind.
        pause: Waits, in kopf's loop, before a request is sent again.
        rng: Source of jitter.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        listener: Listener,
        pause: Pause,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Initialize without sessions."""
        self._config = config
        self._listener = listener
        self._pause = pause
        self._rng = rng
        self._pace = ReconnectDelay()
        self._failures: dict[str, int] = {}
        self._opened: list[aiohttp.ClientSession] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        unfinished = asyncio.all_tasks() - {asyncio.current_task()}
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=EXIT_SECONDS)
        for session in self._opened:
            await session.close()
        if self._config.server.startswith("https:"):
            # TLS connections close gracefully, which takes a round trip; the loop must not be
            # closed before.
            await asyncio.sleep(_TLS_CLOSE_SECONDS)

    async def login(self) -> kopf.AiohttpSession:
        """Open a session with the current credentials. After a refusal, kopf calls this again."""
        config = self._config
        authorization = await config.authorization()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=config.ssl_context() or True),
            headers=[
                *([("Authorization", authorization)] if authorization else []),
                *config.impersonation,
            ],
            proxy=config.proxy or None,
            trust_env=False,
            middlewares=(self._adapt,),
        )
        # kopf closes sessions whose credentials were refused.
        self._opened = [each for each in self._opened if not each.closed] + [session]
        return kopf.AiohttpSession(
            server=config.server, default_namespace=config.namespace, aiohttp_session=session
        )

    async def _adapt(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Adapt and send a request of kopf, and hide refusals from it.

        kopf exits on a refusal, for all namespaces. So it gets a connection error instead, which it
        retries, after a growing pause. It has to know that its credentials were refused, or that a
        version expired.
        """
        path = request.url.path
        if request.method != "GET" or not self._listener.concerns(path):
            return await handler(request)
        watching = "watch" in request.url.query
        request.url = self._rewrite(request.url, watching)
        if watching and (delay := self._pace.begin(path, time.monotonic())):
            await self._pause(delay)
        try:
            response = await handler(request)
            if gap := watching and response.status == _GONE:
                # kopf expects an expired version as an event only, and would exit at this status.
                # So it watches from the present.
                response.release()
                request.url = request.url.without_query_params("resourceVersion")
                response = await handler(request)
        except (aiohttp.ClientError, TimeoutError):
            # kopf would retry immediately.
            await self._pause(self._choose_pause(path))
            raise
        if response.ok:
            self._failures.pop(path, None)
            self._listener.succeeded(path, watching)
            if gap:
                # A listing of our own client, after the watch has begun, finds what went meanwhile.
                self._listener.succeeded(path, watching=False)
        elif response.status not in _FOR_KOPF:
            await self._refuse(response, path)
        return response

    def _rewrite(self, url: URL, watching: bool) -> URL:
        if watching:
            seconds = choose_stream_seconds(self._rng())
            return url.update_query(timeoutSeconds=str(seconds))
        # kopf only needs the version of its listing. Our own client lists the objects page by page;
        # kopf would request all of them in one response and block the loop while it parses them.
        return url.update_query(fieldSelector=f"metadata.name={_NO_OBJECT}")

    async def _refuse(self, response: aiohttp.ClientResponse, path: str) -> NoReturn:
        body = await response.read()  # security: the own API server
        try:
            text = str(orjson.loads(body)["message"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            text = body[:_TEXT_BYTES].decode(errors="replace")
        self._listener.failed(path, response.status, text)
        await self._pause(self._choose_pause(path))
        raise aiohttp.ClientConnectionError(f"{REFUSED} {response.status}: {text}")

    def _choose_pause(self, path: str) -> float:
        failures = self._failures[path] = self._failures.get(path, 0) + 1
        return RECONNECT.delay(failures, self._rng())
