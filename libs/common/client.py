"""A thin asynchronous Kubernetes client: raw objects in, raw objects out, one error tree.

The official client models every kind and copies every object; the runtime wants neither in its hot
path. What this client adds to plain HTTP is what a controller has to know: whether a write that
failed may have happened (`UnknownOutcome`), how long to wait (`Retry-After`), and a bound on the
requests in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson

from libs.common.config import ConnectionConfig
from libs.common.errors import (
    ApiError,
    Expired,
    ServerError,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
    api_error,
)
from libs.common.kinds import Key, Kind, Manifest, key_of
from libs.common.metrics import ClientMetrics

type Query = dict[str, str]

APPLY_PATCH: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept header for lists that carry nothing but metadata."""

_PAGE: Final = 500
"""Objects a page of a list, as in the pager of client-go."""
_RETRIES: Final = 4
_RETRY_AFTER_LIMIT: Final = 10.0
"""Longest wait that the client takes on itself; a longer one is the back-off's business."""
_GATEWAY_TIMEOUT: Final = 504


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Hold a list at one resource version."""

    items: list[Manifest]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Hold one frame of a watch; `type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Manifest


@dataclass(slots=True)
class _Request:
    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: object = None
    content_type: str = "application/json"
    accept: str = "application/json"

    @property
    def operation(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def writes(self) -> bool:
        return self.method != "GET"


class Client:
    """Talk to one API server.

    Args:
        config: Where it is and how to log in.
        user_agent: Shown in audit logs and used by API priority and fairness.
        max_in_flight: Requests sent at the same time, watches apart.
        request_timeout: Seconds for one attempt of a request.
        metrics: Told of each attempt.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        user_agent: str = "slipway",
        max_in_flight: int = 32,
        request_timeout: float = 30.0,
        metrics: ClientMetrics | None = None,
    ) -> None:
        """Prepare; the connection is made by the first request, in the loop that sends it."""
        self.config = config
        self._user_agent = user_agent
        self._gate = asyncio.Semaphore(max_in_flight)
        self._max_in_flight = max_in_flight
        self._timeout = request_timeout
        self._metrics = metrics
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections; watches end."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # Reads.

    async def get(self, kind: Kind, key: Key, subresource: str = "") -> Manifest:
        """Read one object from the server.

        Raises:
            NotFound: There is none.
        """
        return await self._send(_Request("GET", kind.path(key.namespace, key.name, subresource)))

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        page: int = _PAGE,
    ) -> ObjectList:
        """List a kind at its most recent state, page by page.

        Args:
            kind: What to list.
            namespace: Empty for all namespaces.
            label_selector: As `kubectl -l`.
            field_selector: As `kubectl --field-selector`.
            metadata_only: Ask for metadata alone.
            page: Objects a page; 0 for one page.
        """
        items: list[Manifest] = []
        request = _Request("GET", kind.path(namespace))
        request.accept = METADATA_LIST if metadata_only else request.accept
        request.query = _selectors(label_selector, field_selector)
        if page:
            request.query["limit"] = str(page)
        while True:
            try:
                answer = await self._send(request)
            except Expired:
                if "continue" not in request.query:
                    raise
                # Compaction beat the pages: one unpaged list is consistent and cannot expire.
                items.clear()
                request.query.pop("continue")
                request.query.pop("limit", None)
                continue
            items.extend(_typed(item, kind) for item in answer.get("items") or ())
            metadata = answer.get("metadata") or {}
            token = metadata.get("continue")
            if not token:
                return ObjectList(items, metadata.get("resourceVersion") or "")
            request.query["continue"] = token

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300.0,
        inactivity_seconds: float = 75.0,
    ) -> AsyncGenerator[WatchEvent]:
        """Watch a kind from a resource version until the server ends the stream.

        Bookmarks are asked for and yielded. They come about once a minute, so a stream that says
        nothing for `inactivity_seconds` is taken as dead.

        Raises:
            Expired: The resource version is too old, told by status or in the stream.
            ApiError: The server refused, or sent another error.
            Unreachable: The stream broke or fell silent.
        """
        query = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout_seconds)),
        }
        request = _Request("GET", kind.path(namespace), query)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeout, sock_read=inactivity_seconds
        )
        try:
            async with await self._open(request, timeout) as response:
                if response.status >= 400:  # noqa: PLR2004 HTTP's line between success and failure
                    raise _failure(response, await response.read(), request)
                async for line in _lines(response):
                    yield _parse_event(line, request)
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise Unreachable(request.operation, _cause(err)) from err

    # Writes.

    async def create(
        self, kind: Kind, manifest: Manifest, *, field_manager: str = "", dry_run: bool = False
    ) -> Manifest:
        """Create an object.

        Raises:
            AlreadyExists: The name is taken.
            UnknownOutcome: The answer was lost.
        """
        query = _write_query(field_manager, dry_run)
        path = kind.path(manifest["metadata"].get("namespace") or "")
        return await self._send(_Request("POST", path, query, manifest))

    async def replace(
        self, kind: Kind, manifest: Manifest, *, subresource: str = "", field_manager: str = ""
    ) -> Manifest:
        """Replace an object whose resourceVersion is the one in `manifest`.

        Raises:
            Conflict: Somebody else wrote since.
        """
        key = key_of(manifest)
        path = kind.path(key.namespace, key.name, subresource)
        return await self._send(_Request("PUT", path, _write_query(field_manager, False), manifest))

    async def apply(
        self,
        kind: Kind,
        manifest: Manifest,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """Apply an object by server-side apply.

        Raises:
            Conflict: Another manager owns a field and `force` is off, or a UID in the manifest
                is not the live one.
        """
        key = key_of(manifest)
        query = _write_query(field_manager, dry_run) | {"force": "true" if force else "false"}
        path = kind.path(key.namespace, key.name, subresource)
        return await self._send(_Request("PATCH", path, query, manifest, APPLY_PATCH))

    async def patch(
        self,
        kind: Kind,
        key: Key,
        operations: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        subresource: str = "",
        field_manager: str = "",
    ) -> Manifest:
        """Patch an object: by JSON patch for a sequence, by merge patch for a mapping."""
        content_type = MERGE_PATCH if isinstance(operations, Mapping) else JSON_PATCH
        query = _write_query(field_manager, False)
        path = kind.path(key.namespace, key.name, subresource)
        return await self._send(_Request("PATCH", path, query, operations, content_type))

    async def delete(
        self,
        kind: Kind,
        key: Key,
        *,
        uid: str,
        resource_version: str = "",
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> Manifest:
        """Delete exactly the incarnation with the given UID.

        Returns:
            The object with its deletionTimestamp when it lives on for a while, else a Status.

        Raises:
            NotFound: It is gone.
            Conflict: Another incarnation has that name now.
        """
        preconditions = {"uid": uid}
        if resource_version:
            preconditions["resourceVersion"] = resource_version
        options: Manifest = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": propagation,
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = kind.path(key.namespace, key.name)
        return await self._send(_Request("DELETE", path, {}, options))

    async def raw(self, method: str, path: str, body: object = None) -> Manifest:
        """Send a request to a path that no kind describes, such as `/version`."""
        return await self._send(_Request(method, path, {}, body))

    # How a request travels.

    async def _send(self, request: _Request) -> Manifest:
        for attempt in range(_RETRIES):
            last = attempt == _RETRIES - 1
            try:
                return await self._attempt(request)
            except (TooManyRequests, ServerError) as err:
                # Only an answer that says when to come back is retried here, as in client-go: the
                # server promises that it did nothing. The rest is the back-off's business.
                if last or err.retry_after is None or err.retry_after > _RETRY_AFTER_LIMIT:
                    raise
                self._retried(request, err.status)
                await asyncio.sleep(err.retry_after)
            except Unreachable:
                if last or request.writes:
                    raise
                self._retried(request, None)
                await asyncio.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _retried(self, request: _Request, code: int | None) -> None:
        if self._metrics is not None:
            self._metrics.retried(request.method, code)

    async def _attempt(self, request: _Request) -> Manifest:
        started = time.monotonic()
        code: int | None = None
        try:
            async with self._gate:
                timeout = aiohttp.ClientTimeout(total=self._timeout)
                async with await self._open(request, timeout) as response:
                    code = response.status
                    body = await response.read()
        except aiohttp.ClientConnectorError as err:
            # Nothing was sent, so nothing can have happened.
            raise Unreachable(request.operation, _cause(err)) from err
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            lost = UnknownOutcome if request.writes else Unreachable
            raise lost(request.operation, _cause(err)) from err
        finally:
            if self._metrics is not None:
                self._metrics.observe_request(request.method, code, time.monotonic() - started)
        if response.status >= 400:  # noqa: PLR2004 HTTP's line between success and failure
            raise _failure(response, body, request)
        return orjson.loads(body) if body else {}

    async def _open(
        self, request: _Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": request.accept}
        if authorization := await self.config.authorization():
            headers["Authorization"] = authorization
        data: bytes | None = None
        if request.body is not None:
            data = orjson.dumps(request.body)
            headers["Content-Type"] = request.content_type
        return await self._connect().request(
            request.method,
            self.config.server + request.path,
            params=request.query,
            data=data,
            headers=headers,
            timeout=timeout,
            server_hostname=self.config.tls_server_name or None,
            proxy=self.config.proxy or None,
            allow_redirects=False,  # Credentials never follow a redirect.
        )

    def _connect(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Watches hold connections of their own beside the requests in flight.
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=60, ssl=self.config.ssl_context() or True
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={"User-Agent": self._user_agent},
                auto_decompress=True,
                trust_env=False,
            )
        return self._session


def _selectors(label_selector: str, field_selector: str) -> Query:
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in query.items() if value}


def _write_query(field_manager: str, dry_run: bool) -> Query:
    query: Query = {"fieldManager": field_manager} if field_manager else {}
    return query | {"dryRun": "All"} if dry_run else query


def _typed(item: Manifest, kind: Kind) -> Manifest:
    # Items of a typed list carry neither apiVersion nor kind.
    item.setdefault("apiVersion", kind.api_version)
    item.setdefault("kind", kind.kind)
    return item


def _failure(response: aiohttp.ClientResponse, body: bytes, request: _Request) -> Exception:
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict):
        status = {"message": body[:256].decode(errors="replace")}
    error = api_error(
        response.status,
        status,
        operation=request.operation,
        retry_after=_retry_after(response.headers.get("Retry-After")),
    )
    timed_out = error.status == _GATEWAY_TIMEOUT or error.reason == "Timeout"
    if request.writes and timed_out:
        # The server gave up waiting; storage may have taken the write all the same.
        return UnknownOutcome(request.operation, f"{error.status} {error.reason}")
    return error


def _retry_after(text: str | None) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(text or ""))
    return None


def _parse_event(line: bytes, request: _Request) -> WatchEvent:
    try:
        frame = orjson.loads(line)
    except orjson.JSONDecodeError as err:
        raise Unreachable(request.operation, "the stream was cut inside a frame") from err
    if frame["type"] == "ERROR":
        status = frame.get("object") or {}
        raise api_error(int(status.get("code") or 500), status, operation=request.operation)
    return WatchEvent(frame["type"], frame["object"])


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Split the stream into lines of any length; aiohttp's own reader refuses long ones."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


def _cause(err: BaseException) -> str:
    return str(err) or type(err).__name__


def is_retriable(error: Exception) -> bool:
    """Tell whether the same request may succeed later without anybody changing anything."""
    if isinstance(error, ApiError):
        return isinstance(error, TooManyRequests | ServerError)
    return isinstance(error, Unreachable | UnknownOutcome)
