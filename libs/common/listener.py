"""Serve an application on a port, with a bounded number of connections."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from aiohttp import web

from libs.common.settings.addresses import BindAddress

CONNECTIONS: Final = 256
"""Connections that a port keeps open. Kubelets, Prometheus and API servers need a few."""
_HANDSHAKE_SECONDS: Final = 10.0


class Listener:
    """Serves an application.

    Any pod may connect to a port of probes, and a connection whose request never ends takes memory.
    So the oldest connection makes room for a new one: a client that sends its request is served.
    """

    def __init__(self, app: web.Application) -> None:
        """Prepare; nothing listens before `start`."""
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self._socket: asyncio.Server | None = None

    async def start(self, address: BindAddress, tls: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port.

        Raises:
            OSError: The address is in use or does not belong to this machine.
        """
        await self._runner.setup()
        self._socket = await asyncio.get_running_loop().create_server(
            self._connect,
            address.host or None,
            address.port,
            ssl=tls,
            backlog=128,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS if tls else None,
        )
        port: int = self._socket.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop listening; running requests are completed."""
        if self._socket is not None:
            self._socket.close()
        await self._runner.cleanup()

    def _connect(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        open_ones = server.connections
        for oldest in open_ones[: max(0, len(open_ones) + 1 - CONNECTIONS)]:
            end_connection(oldest)
        return server()


def end_connection(connection: web.RequestHandler) -> None:
    """End a connection without the goodbye of TLS, which would wait for the client."""
    if connection.transport is not None:
        connection.transport.abort()
