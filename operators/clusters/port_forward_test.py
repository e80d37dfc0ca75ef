"""Connections through the API server: the frames that a kubelet sends, over real TLS.

The frames come from Kubernetes 1.36: the port of each channel first, then data, errors as text.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from libs.common.kinds import Key
from operators.clusters.certificates import make_authorities
from operators.clusters.port_forward import ForwardingFailed, forward_port
from operators.clusters.testing_tls import HOST, NODE_NAME, Servers
from operators.clusters.workload import build_etcd_tls

POD = Key("kube-system", f"etcd-{NODE_NAME}")
AUTHORITIES = make_authorities("edge", datetime.now(UTC))


@dataclass
class Kubelet:
    """An API server that forwards a port to an echo server with TLS."""

    url: str = ""
    port: int = 0
    refusal: str = ""
    paths: list[str] = field(default_factory=list)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path_qs)
        channel = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await channel.prepare(request)
        assert channel.ws_protocol == "v4.channel.k8s.io"
        number = (2379).to_bytes(2, "little")
        await channel.send_bytes(b"\x00" + number)
        await channel.send_bytes(b"\x01" + number)
        if self.refusal:
            await channel.send_bytes(b"\x01" + self.refusal.encode())
            await channel.close()
            return channel
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)

        async def send() -> None:
            while data := await reader.read(4096):
                await channel.send_bytes(b"\x00" + data)

        task = asyncio.create_task(send())
        async for message in channel:
            assert message.type is WSMsgType.BINARY and message.data[0] == 0
            writer.write(message.data[1:])
        task.cancel()
        writer.close()
        return channel


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    """Run an API server and an echo server."""
    servers, held = Servers(tmp_path, AUTHORITIES), Kubelet()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    inner = servers.build_tls("etcd-ca", NODE_NAME)
    inner.verify_mode = ssl.CERT_REQUIRED
    inner.load_verify_locations(cadata=AUTHORITIES.files["etcd-ca.crt"])
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=inner)
    held.port = server.sockets[0].getsockname()[1]
    app = web.Application()
    app.router.add_get("/{path:.*}", held.forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=servers.build_tls("ca", HOST)).start()
    held.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield held
    await runner.cleanup()
    server.close()
    await server.wait_closed()


def trust() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=AUTHORITIES.files["ca.crt"])


async def ask(url: str, name: str = NODE_NAME) -> bytes:
    """Send a line to the pod, and return what it answers."""
    inner = build_etcd_tls(AUTHORITIES, datetime.now(UTC))
    async with forward_port(
        url, POD, 2379, server=trust(), server_name=HOST, inner=inner, inner_name=name
    ) as (reader, writer):
        writer.write(b"hello\n")
        return await reader.read()


async def test_pod_is_reached_by_tls(kubelet: Kubelet) -> None:
    assert await ask(kubelet.url) == b"HELLO\n"
    path = f"/api/v1/namespaces/kube-system/pods/etcd-{NODE_NAME}/portforward?ports=2379"
    assert kubelet.paths == [path]


async def test_words_of_the_kubelet_are_reported(kubelet: Kubelet) -> None:
    kubelet.refusal = "dial tcp4 127.0.0.1:2379: connection refused"

    with pytest.raises(ForwardingFailed, match="connection refused"):
        await ask(kubelet.url)


async def test_another_pod_than_the_one_that_was_meant_is_refused(kubelet: Kubelet) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await ask(kubelet.url, "edge-control-plane-2")


async def test_api_server_that_is_gone_is_an_error() -> None:
    with pytest.raises(aiohttp.ClientError):
        await ask("https://127.0.0.1:1")
