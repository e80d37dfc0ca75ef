"""Sessions of kopf: what of its requests is changed, and what of the responses it is not told."""

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
from libs.common.runtime.streams import RECONNECT, Pace, choose_stream_seconds

EXIT_SECONDS: Final = 5.0
REFUSED: Final = "refused with"
"""What the error says that kopf is given for a refusal."""
_GOODBYE_SECONDS: Final = 0.1
_NO_OBJECT: Final = "slipway.dev-lists-by-itself"
_FOR_KOPF: Final = frozenset({401, 410, 429})
_TEXT_BYTES: Final = 512

type Pause = Callable[[float], Awaitable[object]]
"""Wait for some seconds in the loop that calls."""


class Listener(Protocol):
    """Hear, in kopf's thread, of the lists and watches of what kopf should watch."""

    def concerns(self, path: str) -> bool:
        """Return whether a path is one of those."""

    def succeeded(self, path: str, watching: bool) -> None:
        """Take in that it was listed, or that a stream of it began."""

    def failed(self, path: str, status: int, text: str) -> None:
        """Take in that the API server refused it."""


class Sessions:
    """The sessions that kopf talks by.

    They are ours: a kopf that is stopped while it looks at what the server has opens others that it
    never closes, and those of its own know neither our TLS context nor a proxy.

    Args:
        config: Where the API server is and how to log in.
        listener: Told of each list and watch of what kopf should watch.
        pause: Waits, in kopf's loop, before what is sent again.
        rng: Source of jitter.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        listener: Listener,
        pause: Pause,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Open nothing yet."""
        self._config = config
        self._listener = listener
        self._pause = pause
        self._rng = rng
        self._pace = Pace()
        self._failures: dict[str, int] = {}
        self._opened: list[aiohttp.ClientSession] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=EXIT_SECONDS)
        for session in self._opened:
            await session.close()
        if self._config.server.startswith("https:"):
            # The streams close politely, which takes a round trip that the loop must see.
            await asyncio.sleep(_GOODBYE_SECONDS)

    async def login(self) -> kopf.AiohttpSession:
        """Open a session with the credentials of now; kopf asks again when they are refused."""
        config = self._config
        authorization = await config.authorization()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=config.ssl_context() or True),
            headers={"Authorization": authorization} if authorization else None,
            proxy=config.proxy or None,
            trust_env=False,
            middlewares=(self._adapt,),
        )
        # kopf closes those whose credentials were refused.
        self._opened = [each for each in self._opened if not each.closed] + [session]
        return kopf.AiohttpSession(
            server=config.server, default_namespace=config.namespace, aiohttp_session=session
        )

    async def _adapt(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request of kopf as it should have been sent, and keep refusals from it.

        kopf ends on a refusal, for all namespaces: so it is told that the connection broke, which
        it waits out, after a pause that grows. That its credentials were refused it has to know,
        and that a version expired as well.
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
        except (aiohttp.ClientError, TimeoutError):
            # kopf would ask again immediately.
            await self._pause(self._choose_pause(path))
            raise
        if response.ok:
            self._failures.pop(path, None)
            self._listener.succeeded(path, watching)
        elif response.status not in _FOR_KOPF:
            await self._refuse(response, path)
        return response

    def _rewrite(self, url: URL, watching: bool) -> URL:
        if watching:
            seconds = choose_stream_seconds(self._rng())
            return url.update_query(timeoutSeconds=str(seconds))
        # Of its listing kopf only needs the version. The objects are listed by our own client,
        # page by page; kopf asks for all at once and parses them while nobody else can work.
        return url.update_query(fieldSelector=f"metadata.name={_NO_OBJECT}")

    async def _refuse(self, response: aiohttp.ClientResponse, path: str) -> NoReturn:
        body = await response.read()
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
