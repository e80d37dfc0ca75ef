"""Transport: how one request travels to the API server, and what its failure means.

A write whose answer is lost may have happened, a read never matters, and a connection that could
not be made means that nothing was sent. Callers get these apart: `UnknownOutcome`, `Unreachable`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.connector import Connection
from yarl import URL

from libs.common.clock import Clock, SystemClock
from libs.common.config import ConnectionConfig
from libs.common.decoding import parse_json
from libs.common.errors import (
    ApiError,
    ClientClosed,
    ConfigError,
    Forbidden,
    ServerError,
    SlipwayError,
    TooManyRequests,
    Unauthorized,
    UnknownOutcome,
    Unreachable,
    api_error,
)
from libs.common.kinds import Manifest
from libs.common.metrics import ClientMetrics
from libs.common.telemetry import Telemetry

type Query = dict[str, str]
type Fence = Callable[[], None]
"""Raise when this process must not write any more."""

_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)".*')
_ESCAPED: Final = re.compile(r"\\(.)")
_WARNINGS: Final = 10
_RETRIES: Final = 4
_CLOSING_TURNS: Final = 3
_RETRY_AFTER_LIMIT: Final = 10.0
"""Longest wait that the client takes on itself; a longer one is the back-off's business."""
_UNAUTHORIZED: Final = 401
FIRST_FAILURE: Final = 300
"""Lowest status that is no success: redirects are not followed, so they are failures too."""
_REFUSED_UNDONE: Final = frozenset({429, 503})
"""Answers after which a write may be sent again: the server did not begin with it."""
_BYTES_OF_VALUE: Final = 8
"""Minimum number of bytes for each key or value; responses of API servers have 11 and more."""
_BEFORE_VALUES: Final = (b",", b":", b"[", b"{")
_TIMEOUTS: Final = frozenset({"Timeout", "ServerTimeout"})
_GATEWAY_FAILURES: Final = frozenset({502, 504})
"""Answers of something in between, which does not know what became of a write."""


@dataclass(slots=True)
class Request:
    """One request before it is sent."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: object = None
    content_type: str = "application/json"
    accept: str = "application/json"
    lists: bool = False
    """Whether the response may be large: as long as it keeps arriving, it may take its time."""
    warnings: list[str] = field(default_factory=list)
    """Warnings of the API server about the request, such as unknown fields; set by the response."""
    limit: ReadLimit | None = None
    """What is left of the limit of the client; None before the first response."""

    @property
    def operation(self) -> str:
        """Name the request in errors: `PATCH /api/v1/namespaces/x/pods/y`."""
        return f"{self.method} {self.path}"

    @property
    def writes(self) -> bool:
        """Whether the request may change something."""
        return self.method != "GET"


class Transport:
    """Connections to one API server, with a limit on concurrent requests.

    Args:
        config: Where it is and how to log in.
        user_agent: Shown in audit logs and used by API priority and fairness.
        max_in_flight: Requests sent at the same time, watches apart.
        request_timeout: Seconds for one attempt of a request.
        metrics: Told of each attempt.
        telemetry: Makes a span of each attempt.
        fence: Asked before each write.
        clock: Time source of the waits between attempts.
        read_limit: Bytes that the server may send for each request, including its retries and
            pages. Required for servers that others control; None for no limit.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        user_agent: str,
        max_in_flight: int,
        request_timeout: float,
        metrics: ClientMetrics | None,
        telemetry: Telemetry,
        fence: Fence | None,
        clock: Clock | None = None,
        read_limit: int | None = None,
    ) -> None:
        """Prepare; the connection is made by the first request, in the loop that sends it."""
        self.config = config
        self.timeout = request_timeout
        self._attempt_timeout = aiohttp.ClientTimeout(total=request_timeout)
        self._list_timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=request_timeout, sock_read=request_timeout
        )
        self._user_agent = user_agent
        self._gate = asyncio.Semaphore(max_in_flight)
        self._metrics = metrics
        self._telemetry = telemetry
        self._fence = fence
        self._clock = clock or SystemClock()
        self._read_limit = read_limit
        self._host = urlsplit(config.server)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._refused = False  # Whether the last answer refused our credentials.

    async def close(self) -> None:
        """Close the connections; streams end, and further requests raise ClientClosed."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None
            # TLS connections are torn down by callbacks, which a loop that ends now would not run.
            for _ in range(_CLOSING_TURNS):
                await asyncio.sleep(0)

    async def send(self, request: Request) -> Manifest:
        """Send a request, again where the server says when, and return the decoded answer."""
        for attempt in range(_RETRIES):
            last = attempt == _RETRIES - 1
            try:
                return await self._attempt(request)
            except (TooManyRequests, ServerError) as err:
                # Only a response that says when to come back is retried here, as in client-go. The
                # rest is the back-off's business.
                if last or err.retry_after is None or err.retry_after > _RETRY_AFTER_LIMIT:
                    raise
                if request.writes and err.status not in _REFUSED_UNDONE:
                    raise
                self._retried(request, err.status)
                await self._clock.sleep(err.retry_after)
            except Unauthorized:
                # Nothing was done. Credentials that were rotated are read again, once.
                if attempt:
                    raise
                self._retried(request, _UNAUTHORIZED)
            except Unreachable:
                if last or request.writes:
                    raise
                self._retried(request, None)
                await self._clock.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _retried(self, request: Request, code: int | None) -> None:
        if self._metrics is not None:
            self._metrics.retried(request.method, code)

    async def _attempt(self, request: Request) -> Manifest:
        async with self._gate:
            if request.writes and self._fence is not None:
                self._fence()  # A wait for the gate may have been long.
            response, body = await self._exchange(request)
        if response.status >= FIRST_FAILURE:
            raise failure_of(response, body, request)
        request.warnings = _warnings_of(response)
        try:
            answer = parse_json(body, 2 * request.lists) if body else {}
        except ValueError as err:
            raise _lost(request, "the response is not JSON") from err
        if not isinstance(answer, dict):
            raise _lost(request, "the response is not a JSON object")
        return answer

    async def _exchange(self, request: Request) -> tuple[aiohttp.ClientResponse, bytes]:
        started = time.monotonic()
        code: int | None = None
        host = self._host
        try:
            with self._telemetry.request_span(
                request.method, request.path, host.hostname or "", host.port or 0
            ) as span:
                timeout = self._list_timeout if request.lists else self._attempt_timeout
                opened = await self.open(request, timeout, span.headers())
                async with opened as response:
                    code = response.status
                    span.set_status(code)
                    return response, await self._read(request, response)
        except ResponseTooLarge as err:
            raise _lost(request, str(err)) from err
        except aiohttp.ClientConnectorError as err:
            # Nothing was sent, so nothing can have happened.
            raise Unreachable(request.operation, cause_of(err)) from err
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise _lost(request, cause_of(err)) from err
        finally:
            if self._metrics is not None:
                self._metrics.observe_request(request.method, code, time.monotonic() - started)

    async def _read(self, request: Request, response: aiohttp.ClientResponse) -> bytes:
        if self._read_limit is None:
            return await response.read()  # security: the own API server
        if request.limit is None:
            request.limit = ReadLimit(self._read_limit)
        return await request.limit.read(response)

    async def open(
        self,
        request: Request,
        timeout: aiohttp.ClientTimeout,
        span_headers: dict[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        """Send one attempt and return the response with its body unread."""
        headers = {"Accept": request.accept, **(span_headers or {})}
        if authorization := await self._authorize(request):
            headers["Authorization"] = authorization
        if self._refused:
            # A kept connection continues with the client certificate that it was made with: none is
            # used again after this, so that the next ones are made with that of now.
            headers["Connection"] = "close"
        data: bytes | None = None
        if request.body is not None:
            data = orjson.dumps(request.body)
            headers["Content-Type"] = request.content_type
        response = await self._connect(request).request(
            request.method,
            _build_url(self.config.server + request.path, tuple(request.query.items())),
            data=data,
            headers=headers,
            timeout=timeout,
            server_hostname=self.config.tls_server_name or None,
            proxy=self.config.proxy or None,
            allow_redirects=False,  # Credentials never follow a redirect.
        )
        self._refused = response.status == _UNAUTHORIZED
        if self._refused:
            self.config.refuse_credentials()
        return response

    async def _authorize(self, request: Request) -> str:
        try:
            async with asyncio.timeout(self.timeout):  # A plugin may hang.
                return await self.config.authorization()
        except TimeoutError as err:
            raise Unreachable(request.operation, "no credentials were available in time") from err
        except ConfigError as err:
            raise Unreachable(request.operation, str(err)) from err

    def _connect(self, request: Request) -> aiohttp.ClientSession:
        if self._closed:
            # A task that outlived its client would open connections that nobody closes.
            raise ClientClosed(request.operation)
        if self._session is None:
            # Watches hold connections of their own beside the requests in flight.
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=60, ssl=self.config.ssl_context() or True
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=[("User-Agent", self._user_agent), *self.config.impersonation],
                auto_decompress=True,
                trust_env=False,
                # An API server has none; what is in between gets each request without any.
                cookie_jar=aiohttp.DummyCookieJar(),
                request_class=_fence_requests(self._fence),
            )
            # aiohttp sends a PUT or DELETE again when a kept connection breaks, and hides it. No
            # public option turns that off.
            self._session._retry_connection = False  # noqa: SLF001 as above
        return self._session


class ResponseTooLarge(Exception):
    """A server sent more than the limit; the message names the limit."""


class ReadLimit:
    """A limit on what a server sends, after decompression.

    A JSON value takes up to 24 times its text in memory (`{}`), so the values are counted as well.

    Args:
        limit: Total size of all responses in bytes.
    """

    def __init__(self, limit: int) -> None:
        """Start with the whole limit."""
        self._limit = limit
        self._bytes_left = limit
        self._values_left = limit // _BYTES_OF_VALUE

    async def read(self, response: aiohttp.ClientResponse) -> bytes:
        """Read a response to its end.

        Raises:
            ResponseTooLarge: The limit is exceeded; the connection is closed.
        """
        parts = []
        async for chunk in response.content.iter_any():
            self._bytes_left -= len(chunk)
            self._values_left -= sum(map(chunk.count, _BEFORE_VALUES))
            if self._bytes_left < 0 or self._values_left < 0:
                response.close()
                raise ResponseTooLarge(
                    f"the server sent more than {self._limit} bytes or "
                    f"{self._limit // _BYTES_OF_VALUE} keys and values"
                )
            parts.append(chunk)
        return b"".join(parts)


@lru_cache(maxsize=256)
def _build_url(address: str, query: tuple[tuple[str, str], ...]) -> URL:
    """Build a URL once for all requests to it, such as the creation of many pods."""
    return URL(address).extend_query(query)


def _fence_requests(fence: Fence | None) -> type[aiohttp.ClientRequest]:
    """Build the class of requests that ask a fence in the moment in which they are sent.

    Credentials and the connection are there by then, which may have taken long.
    """
    if fence is None:
        return aiohttp.ClientRequest
    check: Fence = fence

    class FencedRequest(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if self.method != "GET":
                check()
            return await super().send(conn)

    return FencedRequest


def _lost(request: Request, cause: str) -> SlipwayError:
    """Build the error of a request whose answer did not come, or made no sense."""
    lost = UnknownOutcome if request.writes else Unreachable
    return lost(request.operation, cause)


def failure_of(response: aiohttp.ClientResponse, body: bytes, request: Request) -> Exception:
    """Build the error of a failure answer."""
    try:
        status = parse_json(body)
    except ValueError:
        status = None
    if not isinstance(status, dict):
        status = {"message": body[:256].decode(errors="replace")}
    error = api_error(
        response.status,
        status,
        operation=request.operation,
        retry_after=_retry_after(response.headers.get("Retry-After")),
    )
    if request.writes and not isinstance(error, Forbidden) and _is_unknown(error):
        return UnknownOutcome(request.operation, f"{error.status} {error.reason or error.message}")
    return error


def _warnings_of(response: aiohttp.ClientResponse) -> list[str]:
    """Return the texts of the first headers of the form `299 - "text"`."""
    found = (_WARNING.fullmatch(each) for each in response.headers.getall("Warning", ()))
    return [_ESCAPED.sub(r"\1", each[1]) for each in found if each is not None][:_WARNINGS]


def _is_unknown(error: ApiError) -> bool:
    """Return whether a write that failed may have been done.

    Somebody gave up waiting, and storage may have taken the write all the same. A kube-apiserver
    gives no reason where its storage failed it (`etcdserver: request timed out`), nor does what
    stands before it; only who says when to come back has not begun.
    """
    if error.status in _GATEWAY_FAILURES or error.reason in _TIMEOUTS:
        return True
    return isinstance(error, ServerError) and not error.reason and error.retry_after is None


def _retry_after(text: str | None) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        seconds = float(text or "")
        return seconds if 0.0 <= seconds < math.inf else None
    return None


async def lines_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Split the stream into lines of any length; aiohttp's own reader refuses long ones."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


def abort(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of a stream that is left before its end; one that has ended is kept.

    A TLS connection that is closed politely waits for the other side, which may be long gone.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def cause_of(err: BaseException) -> str:
    """Return the text of an error, or its name when it has none."""
    return str(err) or type(err).__name__
