"""Forwards a connection to a port of a pod through the API server, as `kubectl port-forward` does.

It uses the WebSocket protocol of the kubelet, `v4.channel.k8s.io`: the first byte of a message is
its channel, 0 for data and 1 for errors, and the first message of each channel contains the port
number. Source: pkg/kubelet/server/portforward/websocket.go of Kubernetes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import ClientWebSocketResponse, WSMsgType

from libs.common.kinds import POD, Key

_PROTOCOL: Final = "v4.channel.k8s.io"
_DATA: Final = 0
_CHUNK: Final = 65_536

type Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""Both directions of a connection."""


class ForwardingFailed(OSError):
    """The kubelet could not connect to the port; the message comes from the kubelet."""


@asynccontextmanager
async def forward_port(
    url: str,
    pod: Key,
    port: int,
    *,
    server: ssl.SSLContext,
    server_name: str,
    inner: ssl.SSLContext,
    inner_name: str,
) -> AsyncIterator[Stream]:
    """Connect to a port of a pod by TLS.

    Args:
        url: URL of the API server.
        pod: Namespace and name of the pod.
        port: Port of the pod.
        server: TLS context for the API server.
        server_name: Name in the certificate of the API server.
        inner: TLS context for the pod.
        inner_name: Name in the certificate of the pod.

    Raises:
        OSError: The pod is unreachable.
        aiohttp.ClientError: The API server is unreachable or refuses the request.
    """
    path = f"{url.rstrip('/')}{POD.path(pod.namespace, pod.name, 'portforward')}?ports={port}"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            path, protocols=(_PROTOCOL,), ssl=server, server_hostname=server_name
        ) as channel,
    ):
        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=far)
        incoming = asyncio.create_task(_receive(channel, writer))
        outgoing = asyncio.create_task(_send(reader, channel))
        opening = asyncio.create_task(
            asyncio.open_connection(sock=near, ssl=inner, server_hostname=inner_name)
        )
        try:
            await asyncio.wait({opening, incoming}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                # Raises the error of the kubelet, if it sent one.
                incoming.result()
                raise ForwardingFailed("the connection ended before it was open")
            yield opening.result()
        finally:
            for task in (incoming, outgoing, opening):
                task.cancel()
            ended = await asyncio.gather(opening, incoming, outgoing, return_exceptions=True)
            if isinstance(ended[0], tuple):
                ended[0][1].transport.abort()
            near.close()
            writer.transport.abort()


async def _send(reader: asyncio.StreamReader, channel: ClientWebSocketResponse) -> None:
    while data := await reader.read(_CHUNK):
        await channel.send_bytes(bytes((_DATA,)) + data)


async def _receive(channel: ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    seen: set[int] = set()
    async for message in channel:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        number, data = message.data[0], message.data[1:]
        if number not in seen:
            seen.add(number)
        elif number == _DATA:
            writer.write(data)
            await writer.drain()
        elif data:
            raise ForwardingFailed(data.decode(errors="replace"))
    writer.close()
