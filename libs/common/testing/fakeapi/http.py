"""The HTTP side: parse, check, delay, fail, answer."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson
from aiohttp import web

from libs.common.kinds import Key
from libs.common.testing.fakeapi import reading
from libs.common.testing.fakeapi.access import Access
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.discovery import render_discovery
from libs.common.testing.fakeapi.extensions import Aggregated
from libs.common.testing.fakeapi.faults import Fault, Faults
from libs.common.testing.fakeapi.handlers import Answer, Handlers
from libs.common.testing.fakeapi.openapi import render_openapi
from libs.common.testing.fakeapi.queries import check_query
from libs.common.testing.fakeapi.registry import Registry
from libs.common.testing.fakeapi.requests import Request, RequestLog, parse_request
from libs.common.testing.fakeapi.statuses import Cause, StatusError, invalid_options, no_such_path
from libs.common.testing.fakeapi.store import Store
from libs.common.testing.fakeapi.views import parse_selection
from libs.common.testing.fakeapi.watching import Stream, Watches, pump, too_old

_JSON = "application/json"
_PREFIX = "v/"
_NUMBER = re.compile(rb'"resourceVersion":\s*"(\d+)"')
_OPAQUE_VERSION = rb'"resourceVersion":"v/\1"'
_OPAQUE = re.compile(rb'"resourceVersion":\s*"v/(\d+)"')


@dataclass(slots=True)
class WatchSettings:
    """The options of watches that tests may change.

    Attributes:
        bookmark_seconds: Seconds between bookmarks on an idle watch.
        gone: How a watch from before a compaction is refused: `stream` as a kube-apiserver usually
            does, `http` as it and proxies sometimes do.
    """

    bookmark_seconds: float = 60.0
    gone: str = "stream"


@dataclass(slots=True)
class Frontend:
    """The HTTP server of the fake API.

    Attributes:
        token: Bearer token that clients must send; empty lets everybody in.
        opaque: Whether resource versions are texts without an order, as of some aggregated APIs.
        aggregated: Who answers for groups and versions that are served by others.
    """

    store: Store
    registry: Registry
    handlers: Handlers
    watches: Watches
    faults: Faults
    access: Access
    log: RequestLog
    settings: WatchSettings = field(default_factory=WatchSettings)
    token: str = ""
    opaque: bool = False
    aggregated: dict[tuple[str, str], Aggregated] = field(default_factory=dict)

    async def serve(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request."""
        raw = await http.read() if http.can_read_body else b""
        query = dict(http.query)
        if self.opaque:
            raw = _OPAQUE.sub(rb'"resourceVersion":"\1"', raw)
            query = {name: value.removeprefix(_PREFIX) for name, value in query.items()}
        request = parse_request(http.method, http.path, query, http.headers, raw)
        self.log.add(request)
        delay = self.faults.latency_of(request)
        if delay:
            await asyncio.sleep(delay)
        target = self._target(request)
        fault = self.faults.take(request)
        if fault is not None and fault.mode == "hang":
            await fault.released.wait()
            fault = None
        if fault is not None and fault.mode == "dropped":
            return _drop(http)
        try:
            self._check(request, http, fault)
            if request.verb == "watch" and target is not None:
                return await self._watch(request, http, target)
            elsewhere = self.aggregated.get((request.group, request.version))
            answer = (
                await _forward(request, elsewhere) if elsewhere else self._answer(request, target)
            )
        except StatusError as error:
            answer = _refusal(error)
        except Exception as error:  # noqa: BLE001 a bug here must not look like a lost connection
            answer = _refusal(StatusError(500, "InternalError", _explain(error)))
        if fault is not None and fault.mode == "held":
            await fault.released.wait()
        if fault is not None and fault.mode == "lost":
            return _drop(http)
        request.status = answer.status
        return web.Response(
            body=self._show_versions(answer.body),
            status=answer.status,
            headers={"Content-Type": _JSON, **answer.headers},
        )

    def _show_versions(self, body: bytes) -> bytes:
        return _NUMBER.sub(_OPAQUE_VERSION, body) if self.opaque else body

    def _check(self, request: Request, http: web.BaseRequest, fault: Fault | None) -> None:
        if self.token and http.headers.get("Authorization") != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized", "Unauthorized")
        self.access.check(request)
        if fault is not None and fault.mode == "error":
            raise fault.error()

    def _target(self, request: Request) -> Target | None:
        if not request.plural:
            return None
        found = self.registry.find(request.group, request.version, request.plural)
        if found is None:
            return None
        resource, version = found
        if not resource.namespaced:
            request.key = Key("", request.key.name)
        request.kind = resource.of_kind(version.name)
        return Target(resource, version, request.key, request.subresource)

    def _answer(self, request: Request, target: Target | None) -> Answer:
        if target is not None:
            self.access.serving = True
            try:
                return self.handlers.handle(request, target)
            finally:
                self.access.serving = False
        if request.method == "GET":
            if request.path in ("/healthz", "/readyz", "/livez"):
                return Answer(200, b"ok", {"Content-Type": "text/plain"})
            document = render_discovery(self.registry, request.path) or render_openapi(
                self.registry, request.path
            )
            if document is not None:
                return Answer(200, orjson.dumps(document))
        if request.plural and self.registry.serves(request.group, request.version):
            raise no_such_path()
        return Answer(404, b"404 page not found\n", {"Content-Type": "text/plain"})

    async def _watch(
        self, request: Request, http: web.BaseRequest, target: Target
    ) -> web.StreamResponse:
        check_query(request.query)
        view = self.handlers.build_view(request, target)
        selection = parse_selection(target, request.query, view)
        table = target.resource.table
        version = reading.parse_version(request.query.get("resourceVersion", ""))
        stream = Stream(
            table,
            selection,
            version,
            bookmarks=request.query.get("allowWatchBookmarks") in ("true", "1"),
        )
        refusal = self.watches.take_refusal(table)
        if refusal is None and version and version < self.store.oldest:
            refusal = "http" if self.settings.gone == "http" else "stream"
        if refusal == "http":
            raise too_old(version, self.store.version)
        if refusal == "stream":
            stream.put_error(too_old(version, self.store.version))
        else:
            self._replay(stream, request.query)
            self.watches.open(stream)
        request.status = 200
        timeout = float(request.query.get("timeoutSeconds") or 0) or None
        return await self._stream(http, stream, timeout)

    def _replay(self, stream: Stream, query: Mapping[str, str]) -> None:
        """Queue what the client does not know yet."""
        initial = query.get("sendInitialEvents")
        check_initial(query)
        if initial == "true" or (initial is None and not stream.version):
            records = self.store.table(stream.table)
            for key in sorted(records):
                if stream.selection.includes(key, records[key].obj):
                    stream.put("ADDED", records[key])
            stream.version = self.store.version
            if initial == "true" and stream.bookmarks:
                stream.put_bookmark(initial=True)
        elif stream.version:
            for change in self.store.changes_since(stream.version, stream.table):
                stream.feed(change)
        else:
            stream.version = self.store.version

    async def _stream(
        self, http: web.BaseRequest, stream: Stream, timeout: float | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        try:
            await response.prepare(http)

            async def write(data: bytes) -> None:
                await response.write(self._show_versions(data))

            await pump(
                stream,
                self.watches,
                write,
                timeout=timeout,
                bookmark_interval=self.settings.bookmark_seconds,
            )
            if stream.closing == "abrupt":
                return _drop(http)
        except (ConnectionError, asyncio.CancelledError):
            # The client went away: nobody is left to tell.
            pass
        finally:
            self.watches.close(stream)
        return response


def check_initial(query: Mapping[str, str]) -> None:
    """Refuse `sendInitialEvents` without what it needs.

    Raises:
        StatusError: 422.
    """
    initial, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch")
    why = ""
    if initial is not None and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif initial is None and match:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    if why:
        cause = Cause("resourceVersionMatch", f"Forbidden: {why}", "FieldValueForbidden")
        raise invalid_options("ListOptions", cause)


async def _forward(request: Request, elsewhere: Aggregated) -> Answer:
    status, body = await elsewhere(request)
    return Answer(status, b"" if body is None else orjson.dumps(body))


def _explain(error: Exception) -> str:
    return "bug in the fake API: " + "".join(traceback.format_exception(error))


def _refusal(error: StatusError) -> Answer:
    answer = Answer(error.code, orjson.dumps(error.body))
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(int(error.retry_after))
    return answer


def _drop(http: web.BaseRequest) -> web.StreamResponse:
    """Close the connection without a response."""
    if http.transport is not None:
        http.transport.abort()
    raise ConnectionResetError("The fake API dropped the connection on purpose")
