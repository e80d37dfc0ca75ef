"""A request to the API server or an external system, on its way through the fault proxy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from aiohttp import web

from lab.sweep.external_system import ExternalSystemTrial, Request
from lab.sweep.session import Record, Session
from lab.sweep.wire import Call, find_owned, parse_json
from libs.common.kinds import Manifest

HOP_HEADERS: Final = frozenset({"host", "content-length", "connection", "authorization"})
"""Headers of a request that are not forwarded."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the API server, or its replacement."""

    status: int
    body: bytes
    headers: dict[str, str]

    def render(self) -> web.Response:
        """Return it as a response to the operator."""
        return web.Response(status=self.status, body=self.body, headers=self.headers)


class Upstream(Protocol):
    """A connection to the API server."""

    async def forward(self, exchange: Exchange) -> Answer:
        """Send a request with the permissions of the operator."""

    async def act(self, method: str, path: str, body: Manifest | None = None) -> Answer:
        """Send a request with all permissions, as part of a fault."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request on its way through the proxy.

    Attributes:
        upstream: Connection to the API server.
        added: Parameters that a fault adds to the query.
    """

    upstream: Upstream
    session: Session
    process: int
    request: web.Request
    path: str
    body: bytes
    call: Call | None
    system: ExternalSystemTrial | None = None
    added: Mapping[str, str] = field(default_factory=dict)

    async def forward(self) -> Answer:
        """Send it to the API server with the operator's permissions, or to an external system."""
        if self.system is None:
            return await self.upstream.forward(self)
        if self.call is not None and self.call.group:
            # A path of the API server: anyone who has no right to it never gets to the extension.
            answer = await self.upstream.forward(self)
            if answer.status == 403:
                return answer
        return await self._ask(self.system)

    async def _ask(self, system: ExternalSystemTrial) -> Answer:
        reply = await system.answer(self.outside_request())
        return Answer(reply.status, reply.body, dict(reply.headers))

    def outside_request(self) -> Request:
        """Build the request as an external system receives it."""
        request = self.request
        is_extension = self.call is not None and bool(self.call.group)
        hidden = HOP_HEADERS if is_extension else HOP_HEADERS - {"authorization"}
        headers = {n: v for n, v in request.headers.items() if n.lower() not in hidden}
        return Request(request.method, self.path, dict(request.query), self.body, headers)

    def drop(self) -> web.Response:
        """Break the connection without a response."""
        if self.request.transport is not None:
            self.request.transport.abort()
        return web.Response(status=502)


async def pass_on(exchange: Exchange, call: Call, record: Record) -> Answer:
    """Execute a write and record the result."""
    answer = await exchange.forward()
    record.status = answer.status
    manifest = parse_json(answer.body)
    if answer.status < 300 and manifest.get("kind") != "Status":
        metadata = manifest.get("metadata") or {}
        # An object that goes with its last finalizer is answered as it last was.
        gone = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        record.after = "" if gone else str(metadata.get("resourceVersion") or "")
        exchange.session.saw(call, manifest)
    note_use(exchange.session, call, answer)
    return answer


def note_use(session: Session, call: Call, answer: Answer) -> None:
    """Record the permission that a request used."""
    if call.system and not call.group:
        return
    resource = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
    session.used.add((call.group, resource, call.rbac_verb))
    if answer.status < 300:
        session.used |= find_owned(call, answer.body)
    if answer.status == 403:
        reason = parse_json(answer.body).get("message") or ""
        session.refused.append(f"{call}: {reason}")
