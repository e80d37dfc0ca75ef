"""Fault proxy: a plain HTTP proxy between operators and the real API server that injects faults.

The API server in the configuration of an operator is `http://127.0.0.1:PORT/t/<trial>/<process>`,
so that one proxy serves all trials and knows the trial and process of each request. It adds the
token of the operator's service account, so that the real permissions apply.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from dataclasses import replace
from typing import Final, Self

import aiohttp
from aiohttp import web

from lab.sweep import faults
from lab.sweep.encodings import accept_json
from lab.sweep.exchange import HOP_HEADERS, Answer, Exchange, note_use, pass_on
from lab.sweep.external_system import ExternalSystem
from lab.sweep.ownership import belongs, leave_out_others
from lab.sweep.session import Record, Session
from lab.sweep.triggers import Trigger
from lab.sweep.upgrades import is_upgrade, pass_upgrade
from lab.sweep.wire import Call, Verb, parse_call, parse_frame, parse_json
from libs.common.kinds import Manifest

_KEPT_HEADERS: Final = ("Content-Type", "Retry-After", "Warning")
_LIMIT: Final = 16 * 2**20
_NO_OBJECTS: Final = ("BOOKMARK", "ERROR")
_OUTSIDE_VERBS: Final[dict[str, Verb]] = {"POST": "create", "DELETE": "delete", "PATCH": "patch"}


class FaultProxy:
    """The proxy of all trials.

    Args:
        server: URL of the API server.
        tls: TLS context for connections to it.
        admin: Token with all permissions, for changes by faults.

    Attributes:
        port: Port of the proxy.
        reachable: Whether requests reach the API server; otherwise connections break.
    """

    def __init__(self, server: str, tls: ssl.SSLContext | None, admin: str) -> None:
        """Initialize; `async with` starts the server."""
        self._server = server
        self._tls = tls
        self._admin = admin
        self._sessions: dict[str, Session] = {}
        self._streams: dict[tuple[str, int], set[asyncio.Task[object]]] = {}
        self.port = 0
        self.reachable = True

    async def __aenter__(self) -> Self:
        """Serve on a free port of the loopback address."""
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or True),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=_LIMIT)
        app.router.add_route("*", "/t/{trial}/{process}/{path:.*}", self._handle)
        app.router.add_route("*", "/x/{trial}/{process}/{system}/{path:.*}", self._handle_outside)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop serving."""
        for streams in self._streams.values():
            for task in streams:
                task.cancel()
        await self._runner.cleanup()
        await self._client.close()

    def url(self, session: Session, process: int) -> str:
        """Return the URL of the API server for a process of a trial."""
        return f"http://127.0.0.1:{self.port}/t/{session.namespace}/{process}"

    def outside_url(self, session: Session, system: str, process: int = -1) -> str:
        """Return the URL of an external system; objects name the URL of the newest process."""
        return f"http://127.0.0.1:{self.port}/x/{session.namespace}/{process}/{system}"

    def open(self, session: Session) -> None:
        """Start serving a trial."""
        self._sessions[session.namespace] = session

    def close(self, session: Session) -> None:
        """Stop serving a trial."""
        del self._sessions[session.namespace]

    def hang_up(self, session: Session, process: int) -> None:
        """Close the streams of a process that has ended."""
        for task in self._streams.pop((session.namespace, process), ()):
            task.cancel()

    async def forward(self, exchange: Exchange) -> Answer:
        """Send a request to the API server with the operator's permissions."""
        async with await self._open(exchange) as response:
            body = await response.read()
        headers = {n: response.headers[n] for n in _KEPT_HEADERS if n in response.headers}
        return Answer(response.status, body, headers)

    async def act(self, method: str, path: str, body: Manifest | None = None) -> Answer:
        """Send a request with all permissions, as part of a fault."""
        headers = {"Authorization": f"Bearer {self._admin}", "Accept-Encoding": "identity"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        async with self._client.request(
            method, self._server + path, json=body, headers=headers
        ) as response:
            return Answer(response.status, await response.read(), {})

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        session = self._sessions.get(request.match_info["trial"])
        if session is None:
            return web.Response(status=503, text="the trial is over")
        process = int(request.match_info["process"])
        path = "/" + request.match_info["path"]
        if is_upgrade(request):
            return await pass_upgrade(request, self._server + path, session.token, self._tls)
        body = await request.read()
        content_type = request.headers.get("Content-Type", "")
        call = parse_call(request.method, path, request.query, content_type, body)
        path = session.confine(path, call)
        for outside, system in session.systems.values():
            if call is not None and path.startswith(outside.prefixes or ("//",)):
                call = replace(call, system=outside.id)
                return await self._pass(
                    Exchange(self, session, process, request, path, body, call, system)
                )
        return await self._pass(Exchange(self, session, process, request, path, body, call))

    async def _handle_outside(self, request: web.Request) -> web.StreamResponse:
        session = self._sessions.get(request.match_info["trial"])
        if session is None or request.match_info["system"] not in session.systems:
            return web.Response(status=503, text="the trial is over")
        process = int(request.match_info["process"])
        if process < 0:
            process = session.newest
        outside, system = session.systems[request.match_info["system"]]
        path = "/" + request.match_info["path"]
        exchange = Exchange(self, session, process, request, path, await request.read(), None)
        exchange = replace(exchange, call=_parse_outside(outside, exchange), system=system)
        return await self._pass(exchange)

    async def _pass(self, exchange: Exchange) -> web.StreamResponse:
        session, call = exchange.session, exchange.call
        if exchange.process in session.frozen:
            await session.released.wait()
        if not self.reachable:
            return exchange.drop()
        try:
            if call is not None and call.verb == "watch":
                return await self._watch(exchange, call)
            if call is None or call.series == "read":
                return await self._read(exchange)
            # A write continues even if the process that sent it dies.
            return await asyncio.shield(asyncio.ensure_future(self._write(exchange, call)))
        except aiohttp.ClientError:
            # The API server is not there, as after a crash of it.
            return exchange.drop()

    async def _read(self, exchange: Exchange) -> web.Response:
        exchange.session.reads += 1
        if exchange.session.is_out:
            return faults.refuse()
        session, call = exchange.session, exchange.call
        lists = call is not None and call.verb == "list"
        if lists and exchange.system is None:
            query = exchange.request.query
            added = session.past.turn_back(exchange.process, exchange.path, query)
            exchange = replace(exchange, added=added)
        with session.asking():
            answer = await exchange.forward()
        if call is not None:
            note_use(session, call, answer)
            if lists and call.resource in session.scoped and answer.status == 200:
                listing = leave_out_others(parse_json(answer.body), session.namespace)
                answer = replace(answer, body=json.dumps(listing).encode())
        return answer.render()

    async def _write(self, exchange: Exchange, call: Call) -> web.StreamResponse:
        session = exchange.session
        record = Record(
            call,
            session.phase,
            exchange.process,
            time.monotonic(),
            dict(exchange.request.query),
            exchange.request.headers.get("User-Agent", ""),
            parse_json(exchange.body),
            before=session.known(call),
        )
        session.check_body(call, exchange.body)
        series = session.series_of(call)
        if series != "write":
            session.series.append(record)
            if session.is_muted(series):
                return faults.refuse(record)
            return (await pass_on(exchange, call, record)).render()
        session.records.append(record)
        called = replace(call, name=session.rewrite(call.name))
        moment = session.counters.name_write(session.phase, called)
        with session.busy():
            if lag := session.lags.get("write"):
                await asyncio.sleep(lag)
            if session.meets(moment):
                session.fired_process = exchange.process
                return await faults.break_write(exchange, call, record)
            if session.is_out:
                return faults.refuse(record)
            if _is_due_again(session, exchange.process):
                return await faults.break_recovery(exchange, call, record)
            return (await pass_on(exchange, call, record)).render()

    async def _watch(self, exchange: Exchange, call: Call) -> web.StreamResponse:
        session = exchange.session
        if call.resource in session.fouled and exchange.request.query.get("resourceVersion"):
            return await faults.refuse_resumption(exchange, call)
        await session.past.catch_up(exchange.process, exchange.path)
        task = asyncio.current_task()
        assert task is not None
        streams = self._streams.setdefault((session.namespace, exchange.process), set())
        streams.add(task)
        try:
            async with await self._open(exchange) as upstream:
                return await self._relay(exchange, call, upstream)
        finally:
            streams.discard(task)

    async def _relay(
        self, exchange: Exchange, call: Call, upstream: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        note_use(exchange.session, call, Answer(upstream.status, b"", {}))
        exchange.session.watched.add(call.resource)
        response = web.StreamResponse(status=upstream.status)
        response.content_type = upstream.content_type
        response.enable_chunked_encoding()
        await response.prepare(exchange.request)
        rest = b""
        stream = faults.Stream(exchange, call, response)
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            async for chunk in upstream.content.iter_any():
                if upstream.content_type != "application/json":
                    await response.write(chunk)
                    continue
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line and not await self._deliver(stream, line):
                        return exchange.drop()
            await response.write_eof()
        return response

    async def _deliver(self, stream: faults.Stream, line: bytes) -> bool:
        """Forward a frame; return whether the stream continues."""
        session, call = stream.exchange.session, stream.call
        action, manifest = parse_frame(line)
        metadata = manifest.get("metadata") or {}
        if action in ("BOOKMARK", "ERROR") or not belongs(manifest, session.namespace):
            # What other trials have in no namespace is none of its business.
            is_shown = bool(metadata.get("namespace")) or call.resource not in session.scoped
            return await stream.pass_on(line) if is_shown or action in _NO_OBJECTS else True
        name = str(metadata.get("name"))
        session.saw(Call("get", call.group, call.resource, name=name), manifest)
        target = f"{call.resource}.{call.group}" if call.group else call.resource
        shown = session.rewrite(name)
        moment: Trigger = session.counters.name_event(session.phase, action, target, shown)
        if session.meets(moment):
            return await stream.break_event(line, manifest)
        return await stream.pass_on(line)

    async def _open(self, exchange: Exchange) -> aiohttp.ClientResponse:
        headers = {
            name: value
            for name, value in exchange.request.headers.items()
            if name.lower() not in HOP_HEADERS
        }
        headers |= {"Authorization": f"Bearer {exchange.session.token}"}
        headers["Accept-Encoding"] = "identity"
        if exchange.call is not None and "Accept" in headers:
            headers["Accept"] = accept_json(headers["Accept"])
        added = exchange.added
        query = [each for each in exchange.request.query.items() if each[0] not in added]
        return await self._client.request(
            exchange.request.method,
            self._server + exchange.path,
            params=[*query, *added.items()],
            data=exchange.body or None,
            headers=headers,
            skip_auto_headers=("Content-Type", "Accept", "User-Agent"),
        )


def build_kubeconfig(url: str, namespace: str, token: str) -> Manifest:
    """Build the kubeconfig of an operator behind the proxy, which replaces the token."""
    context = {"cluster": "proxy", "user": "nobody", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": url}}],
        "users": [{"name": "nobody", "user": {"token": token}}],
        "contexts": [{"name": "proxy", "context": context}],
        "current-context": "proxy",
    }


def _parse_outside(outside: ExternalSystem, exchange: Exchange) -> Call:
    request = exchange.outside_request()
    is_write = outside.is_write(request)
    verb = _OUTSIDE_VERBS.get(request.method, "update") if is_write else "get"
    return Call(verb, "", outside.id, name=request.path, system=outside.id)


def _is_due_again(session: Session, process: int) -> bool:
    if not (session.recovery and session.fired and process > session.fired_process):
        return False
    session.recovery -= 1
    return session.recovery == 0
