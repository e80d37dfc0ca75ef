"""Faults: the handling of the write or the event that a trial disturbs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import aiohttp
from aiohttp import web

from lab.sweep.exchange import Exchange, pass_on
from lab.sweep.modes import RENEW_SECONDS, REQUEST_TIMEOUT, Mode
from lab.sweep.recorder import Version
from lab.sweep.session import Record, Session
from lab.sweep.wire import Call, Series, parse_json, render_status
from libs.common.kinds import Manifest

_HANG_SECONDS: Final = REQUEST_TIMEOUT + 0.3
_LATE_SECONDS: Final = 0.25
_OUTAGE_SECONDS: Final = 0.8
_HOLD_SECONDS: Final = 20.0
_GAP_SECONDS: Final = 10.0
_IN_FLIGHT_SECONDS: Final = 0.002
_MUTED: Final[Mapping[Mode, tuple[Series, float]]] = {
    Mode.LEASE: ("lease", RENEW_SECONDS + 0.6),
    Mode.EVENTS: ("event", 3600.0),
}
FOREIGN: Final = {"sweep.slipway.dev/foreign": "true"}
"""Labels of foreign objects that a fault creates under the name of an object of the operator."""

_REFUSALS: Final[Mapping[Mode, tuple[int, str, dict[str, str]]]] = {
    Mode.E429: (429, "TooManyRequests", {"Retry-After": "1"}),
    Mode.E500: (500, "InternalError", {}),
    Mode.E503: (503, "ServiceUnavailable", {}),
    Mode.E403: (403, "Forbidden", {}),
}


async def break_write(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    """Apply the mode of the trial to a write."""
    session = exchange.session
    mode = session.mode
    if mode in _REFUSALS:
        code, reason, headers = _REFUSALS[mode]
        return _refuse(record, code, reason, **headers)
    handler = _WRITE_FAULTS[mode]
    return await handler(exchange, call, record)


def refuse(record: Record | None = None) -> web.Response:
    """Respond like an unavailable API server."""
    if record is not None:
        return _refuse(record, 503, "ServiceUnavailable")
    body = render_status(503, "ServiceUnavailable", "injected by the sweep: an outage")
    return web.json_response(body, status=503)


async def break_recovery(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    """Kill the process again, at a write of its recovery."""
    return await _lose_and_kill(exchange, call, record)


async def refuse_resumption(exchange: Exchange, call: Call) -> web.StreamResponse:
    """Respond to a watch that resumes after a break: its version is too old."""
    session = exchange.session
    await asyncio.wait_for(session.gap.wait(), _GAP_SECONDS)
    session.fouled.discard(call.resource)
    status = render_status(410, "Expired", "too old resource version")
    body = json.dumps({"type": "ERROR", "object": status}) + "\n"
    return web.Response(text=body, content_type="application/json")


class Stream:
    """A stream that forwards the frames of one watch to the operator.

    Args:
        exchange: The watch request.
        call: Operation of the watch request.
        response: Response to the operator, which receives the frames.
    """

    def __init__(self, exchange: Exchange, call: Call, response: web.StreamResponse) -> None:
        """Initialize a stream without a fault."""
        self.exchange = exchange
        self.call = call
        self._response = response
        self._silent = False

    async def pass_on(self, line: bytes) -> bool:
        """Forward a frame."""
        session = self.exchange.session
        if lag := session.lags.get("event"):
            with session.busy():
                await asyncio.sleep(lag)
        await session.delivering.wait()
        if not self._silent:
            await self._response.write(line + b"\n")
        return True

    async def break_event(self, line: bytes, manifest: Manifest) -> bool:
        """Apply the mode to a frame; return whether the stream continues."""
        session = self.exchange.session
        match session.mode:
            case Mode.DELAY:
                with session.busy():
                    await asyncio.sleep(session.delay)
                return await self.pass_on(line)
            case Mode.DROP:
                session.note_activity()
                return True
            case Mode.DUPLICATE:
                await self.pass_on(line)
                return await self.pass_on(line)
            case Mode.GONE:
                session.fouled.add(self.call.resource)
                task = asyncio.ensure_future(_delete_in_the_gap(self.exchange, self.call, manifest))
                task.add_done_callback(lambda _: session.gap.set())
                return False
            case Mode.SILENT:
                self._silent = True
                return True
            case _:  # CUT
                return False


async def _kill_before(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    exchange.session.kill(exchange.process)
    return exchange.drop()


async def _lose_and_kill(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    await pass_on(exchange, call, record)
    exchange.session.kill(exchange.process)
    return exchange.drop()


async def _execute_and_refuse(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    await pass_on(exchange, call, record)
    return _refuse(record, 500, "InternalError")


async def _answer_and_kill(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    response = (await pass_on(exchange, call, record)).render()
    await response.prepare(exchange.request)
    await response.write_eof()
    exchange.session.kill(exchange.process)
    return response


async def _lose(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    # The event would reveal the lost response: it is delivered after the retry of the write.
    session = exchange.session
    session.delivering.clear()
    asyncio.get_running_loop().call_later(_LATE_SECONDS, session.delivering.set)
    session.note_activity(_LATE_SECONDS)
    await pass_on(exchange, call, record)
    return exchange.drop()


async def _begin_outage(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    exchange.session.outage_until = time.monotonic() + _OUTAGE_SECONDS
    return _refuse(record, 503, "ServiceUnavailable")


async def _wait_and_execute(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(exchange.session.released.wait(), exchange.session.delay)
    return (await pass_on(exchange, call, record)).render()


async def _hang(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    record.injected = True
    await asyncio.sleep(_HANG_SECONDS)
    return exchange.drop()


async def _conflict(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    session = exchange.session
    is_create = call.verb == "create" and not call.subresource and exchange.system is None
    if not is_create or session.hand_to_foreigner is None:
        return _refuse(record, 409, "Conflict")
    foreign = session.hand_to_foreigner(build_foreign(record.body))
    created = await exchange.upstream.act("POST", exchange.path, foreign)
    if created.status >= 300:
        raise RuntimeError(f"Cannot put a foreign object in the way: {created.body[:500]!r}")
    manifest = parse_json(created.body)
    session.foreign[f"{exchange.path}/{call.name}"] = manifest
    session.removed.add(f"{call.resource} {call.name}")
    return (await pass_on(exchange, call, record)).render()


async def _hold(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    session = exchange.session
    session.held = True
    session.frozen.add(exchange.process)
    try:
        await asyncio.wait_for(session.released.wait(), _HOLD_SECONDS)
    finally:
        session.held = False
    return (await pass_on(exchange, call, record)).render()


async def _answer_and_turn_back(
    exchange: Exchange, call: Call, record: Record
) -> web.StreamResponse:
    """Kill the process after the response; lists of the next process show the state before."""
    response = await exchange.upstream.act("GET", "/api/v1/namespaces?limit=1")
    newest = int(parse_json(response.body)["metadata"]["resourceVersion"])
    exchange.session.past.begin(newest, exchange.process)
    return await _answer_and_kill(exchange, call, record)


async def _mute(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    series, seconds = _MUTED[exchange.session.mode]
    exchange.session.muted[series] = time.monotonic() + seconds
    if series == "lease":
        # The silence that follows is not rest: the process is about to give up its leadership.
        exchange.session.note_activity(seconds)
    return (await pass_on(exchange, call, record)).render()


async def _crash(exchange: Exchange, call: Call, record: Record) -> web.StreamResponse:
    """Kill a component of the control plane while the write is in progress."""
    sent = asyncio.ensure_future(pass_on(exchange, call, record))
    await asyncio.sleep(_IN_FLIGHT_SECONDS)
    name = "etcd" if exchange.session.mode is Mode.ETCD else "kube-apiserver"
    await exchange.session.crash(name)
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        await asyncio.wait_for(sent, _HANG_SECONDS)
    return exchange.drop()


def build_foreign(manifest: Manifest) -> Manifest:
    """Build a foreign object with the name of an object of the operator."""
    metadata = manifest.get("metadata") or {}
    kept = {name: metadata[name] for name in ("name", "namespace") if name in metadata}
    return {**manifest, "metadata": {**kept, "labels": dict(FOREIGN)}}


def is_foreign(version: Version) -> bool:
    """Return whether a fault created an object as a foreign object."""
    labels = version.manifest["metadata"].get("labels") or {}
    return FOREIGN.items() <= labels.items()


async def _delete_in_the_gap(exchange: Exchange, call: Call, manifest: Manifest) -> None:
    """Delete the object of the lost event, if it is a child of the operator's objects."""
    session = exchange.session
    metadata = manifest["metadata"]
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    if not any(owner["apiVersion"].partition("/")[0] == session.group for owner in owners):
        return
    path = f"{exchange.path}/{metadata['name']}"
    body = {"preconditions": {"uid": metadata["uid"]}, "gracePeriodSeconds": 0}
    with session.busy():
        answer = await exchange.upstream.act("DELETE", path, body)
        if answer.status < 300:
            session.removed.add(f"{call.resource} {metadata['name']}")


def _refuse(record: Record, code: int, reason: str, **headers: str) -> web.Response:
    record.injected = True
    record.status = code
    body = render_status(code, reason, f"injected by the sweep: {reason}")
    return web.json_response(body, status=code, headers=headers)


type _Fault = Callable[[Exchange, Call, Record], Awaitable[web.StreamResponse]]
_WRITE_FAULTS: Final[Mapping[Mode, _Fault]] = {
    Mode.K0: _kill_before,
    Mode.K1: _lose_and_kill,
    Mode.K2: _answer_and_kill,
    Mode.K3: _lose_and_kill,
    Mode.A1: _lose,
    Mode.DONE500: _execute_and_refuse,
    Mode.E409: _conflict,
    Mode.OUTAGE: _begin_outage,
    Mode.HANG: _hang,
    Mode.LATE: _wait_and_execute,
    Mode.H: _hold,
    Mode.STALE: _answer_and_turn_back,
    Mode.LEASE: _mute,
    Mode.EVENTS: _mute,
    Mode.API: _crash,
    Mode.ETCD: _crash,
}


def forget(session: Session) -> None:
    """Release all requests and events that a trial still holds back."""
    session.released.set()
    session.gap.set()
    session.delivering.set()
