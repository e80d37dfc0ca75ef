"""Tests of the fault proxy with clients that are not ours: in protobuf, and beyond HTTP."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml
from aiohttp import web

from lab.sweep.proxy import FaultProxy, build_kubeconfig
from lab.sweep.session import Session
from libs.common.client import Client
from libs.common.kinds import POD, Kind, Manifest, build_object
from libs.common.testing.apiserver import ControlPlane, find_assets
from libs.common.testing.ports import find_free_port
from libs.common.testing.processes import stop_process

_DEPLOYMENT: Final = Kind.of("apps/v1", "Deployment")
_HANG_SECONDS: Final = 180.0


@asynccontextmanager
async def run_controller_manager(folder: Path, url: str) -> AsyncIterator[None]:
    """Run kube-controller-manager, whose client speaks protobuf, behind the proxy."""
    program = find_assets() / "kube-controller-manager"
    if not program.exists():
        pytest.skip("kube-controller-manager is not built")
    kubeconfig = folder / "kubeconfig"
    config = build_kubeconfig(url, "default", "none")
    kubeconfig.write_text(yaml.safe_dump(config))
    command = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--controllers=deployment-controller,replicaset-controller",
        "--kube-api-content-type=application/vnd.kubernetes.protobuf",
        f"--secure-port={find_free_port()}",
        f"--cert-dir={folder}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
    try:
        yield
    finally:
        stop_process(process, 60)


def build_deployment(namespace: str) -> Manifest:
    labels = {"app": "web"}
    containers = [{"name": "main", "image": "busybox"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return build_object(_DEPLOYMENT, "web", namespace, spec=spec)


@pytest.mark.apiserver
async def test_client_in_protobuf_works_and_its_writes_and_events_have_names(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str, tmp_path: Path
) -> None:
    config = kube_apiserver.config
    token = (await config.authorization()).removeprefix("Bearer ")
    session = Session(kube_namespace, token, phase="create")
    async with FaultProxy(config.server, config.ssl_context(), token) as proxy:
        proxy.open(session)
        async with (
            run_controller_manager(tmp_path, proxy.url(session, 0)),
            asyncio.timeout(_HANG_SECONDS),
        ):
            while not {"deployments", "replicasets", "pods"} <= session.watched:
                await asyncio.sleep(0.05)
            session.armed = True
            await kube_client.create(_DEPLOYMENT, build_deployment(kube_namespace))
            pods: set[str] = set()
            while len(pods) < 2 or sum(m.action == "ADDED" for m in session.moments) < 4:
                listing = await kube_client.list(POD, kube_namespace)
                pods = {pod["metadata"]["name"] for pod in listing.items}
                await asyncio.sleep(0.05)

    creates = [each.call for each in session.records if each.call.verb == "create"]
    replica_sets = [call.name for call in creates if call.resource == "replicasets"]
    assert len(replica_sets) == 1
    assert [call.name for call in creates if call.resource == "pods"] == [f"{replica_sets[0]}-"] * 2
    added = {(m.target, m.name) for m in session.moments if m.action == "ADDED"}
    assert added == {
        ("deployments.apps", "web"),
        ("replicasets.apps", replica_sets[0]),
        *(("pods", name) for name in pods),
    }


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"\r\nAuthorization: Bearer token\r\n" in head
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n")
    writer.write(head.splitlines()[0] + b"\r\n")
    writer.write(await reader.readexactly(5))
    writer.close()


async def test_upgraded_connection_is_passed_through_unread() -> None:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    session = Session("default", "token", armed=True)
    async with server, FaultProxy(f"http://127.0.0.1:{port}", None, "admin") as proxy:
        proxy.open(session)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(
            b"POST /t/default/0/api/v1/namespaces/default/pods/a/exec?command=a%20b HTTP/1.1\r\n"
            b"Host: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nAuthorization: none\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x00\xffabc")
        rest = await reader.read()
        writer.close()

    assert head.startswith(b"HTTP/1.1 101 ")
    line = b"POST /api/v1/namespaces/default/pods/a/exec?command=a%20b HTTP/1.1\r\n"
    assert rest == line + b"\x00\xffabc"
    assert not session.moments


async def test_watch_in_another_encoding_is_passed_through_untouched() -> None:
    frames = b"\0\0\0\nk8s\0 a\nframe\n"

    async def watch(_: web.Request) -> web.Response:
        return web.Response(body=frames, content_type="application/x-frames")

    app = web.Application()
    app.router.add_get("/api/v1/pods", watch)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    session = Session("default", "token", armed=True)
    async with FaultProxy(url, None, "admin") as proxy, aiohttp.ClientSession() as client:
        proxy.open(session)
        async with client.get(f"{proxy.url(session, 0)}/api/v1/pods?watch=1") as response:
            assert response.content_type == "application/x-frames"
            assert await response.read() == frames
    await runner.cleanup()
