"""Connections that leave HTTP, such as those of exec and port-forward: passed through unread."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp import web
from yarl import URL

_HIDDEN: Final = frozenset({"host", "authorization"})
_CHUNK: Final = 2**16


def is_upgrade(request: web.Request) -> bool:
    """Return whether a client asks to continue with another protocol than HTTP."""
    return "upgrade" in request.headers.get("Connection", "").lower()


async def pass_upgrade(
    request: web.Request, url: str, token: str, tls: ssl.SSLContext | None
) -> web.StreamResponse:
    """Connect a client with the API server until one of them ends the connection."""
    target = URL(url)
    secure = tls if target.scheme == "https" else None
    reader, writer = await asyncio.open_connection(target.host, target.port, ssl=secure)
    transport = request.transport
    assert isinstance(transport, asyncio.Transport)
    transport.set_protocol(_Inward(writer, transport.get_protocol().connection_lost))
    writer.write(_build_head(request, target, token))
    try:
        while data := await reader.read(_CHUNK):
            transport.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()
        transport.close()
    return web.Response()


class _Inward(asyncio.Protocol):
    """Passes what a client sends to the API server."""

    def __init__(
        self, writer: asyncio.StreamWriter, lost: Callable[[Exception | None], None]
    ) -> None:
        self._writer = writer
        self._lost = lost

    def data_received(self, data: bytes) -> None:
        self._writer.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._writer.close()
        self._lost(exc)


def _build_head(request: web.Request, target: URL, token: str) -> bytes:
    path = f"{target.raw_path}?{request.rel_url.raw_query_string}".rstrip("?")
    lines = [f"{request.method} {path} HTTP/1.1", f"Host: {target.host}:{target.port}"]
    lines += [f"{n}: {v}" for n, v in request.headers.items() if n.lower() not in _HIDDEN]
    lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode()
