"""Certificates that are renewed while the process runs, against a real TLS server."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
import yaml
from aiohttp import web

from libs.common import config as module
from libs.common.client import Client
from libs.common.config import ConnectionConfig, load_config
from libs.common.errors import Unauthorized, Unreachable
from libs.common.kinds import CONFIG_MAP
from libs.common.testing.certificates import create_certificates
from libs.common.tls import SESSION_SECONDS, RenewingContext


class Server:
    """A TLS server that tells each client whom it takes it for."""

    def __init__(self, authority: Path) -> None:
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self.url = ""
        self.keeps = False
        self.resumed: list[bool] = []
        self.connections: set[object] = set()
        self.admits: Callable[[str], bool] = lambda _name: True
        self.show(authority)

    def show(self, authority: Path) -> None:
        """Show the certificate of an authority, and trust the clients of it too."""
        self.tls.load_cert_chain(authority / "tls.crt", authority / "tls.key")
        self.tls.load_verify_locations(authority / "ca.crt")

    async def answer(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        self.connections.add(request.transport)
        self.resumed.append(request.transport.get_extra_info("ssl_object").session_reused)
        certificate = request.transport.get_extra_info("peercert") or {}
        subject = dict(pair for (pair,) in certificate.get("subject", ()))
        name = subject.get("commonName", "")
        status = 200 if self.admits(name) else 401
        response = web.json_response({"name": name}, status=status)
        if not self.keeps:
            response.force_close()
        return response


@asynccontextmanager
async def serving(authority: Path) -> AsyncIterator[Server]:
    server = Server(authority)
    runner = web.ServerRunner(web.Server(server.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.tls).start()
    server.url = f"https://localhost:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def put(folder: Path, authority: Path, name: str, *parts: str) -> None:
    """Put files of a client in place as a mounted Secret does: by a link that is moved."""
    for part in parts or ("crt", "key"):
        (folder / "next").symlink_to(authority / f"{name}.{part}")
        (folder / "next").replace(folder / f"client.{part}")


def build_config(server: Server, authority: Path, folder: Path) -> ConnectionConfig:
    """Build the connection of the client whose files are in a folder."""
    return ConnectionConfig(
        server.url,
        ca_file=str(authority / "ca.crt"),
        cert_file=str(folder / "client.crt"),
        key_file=str(folder / "client.key"),
    )


async def ask(client: Client) -> str:
    """Return whom the server takes a client for."""
    return str((await client.raw("GET", "/version"))["name"])


async def look(client: Client) -> None:
    """Begin a watch."""
    await anext(client.watch(CONFIG_MAP, resource_version="1"))


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    one, two = (
        create_certificates(tmp_path_factory.mktemp(name), clients=("first", "second"))
        for name in ("one", "two")
    )
    return one, two


async def test_authority_without_extensions_is_trusted(authorities: tuple[Path, Path]) -> None:
    """Older EKS clusters have such authorities; Python 3.13 refuses them by default."""
    one, two = authorities
    async with serving(one) as server:
        async with Client(ConnectionConfig(server.url, ca_file=str(one / "ca.crt"))) as client:
            await ask(client)
        async with Client(ConnectionConfig(server.url, ca_file=str(two / "ca.crt"))) as client:
            with pytest.raises(Unreachable, match=r"(?i)certificate"):
                await ask(client)


async def follow_client(folder: Path, authority: Path) -> list[str]:
    seen = []
    put(folder, authority, "first")
    async with serving(authority) as server:
        async with Client(build_config(server, authority, folder)) as client:
            seen.append(await ask(client))
            put(folder, authority, "second", "key")
            seen.append(await ask(client))
            put(folder, authority, "second", "crt")
            seen.append(await ask(client))
            (folder / "client.crt").unlink()
            seen.append(await ask(client))
    return seen


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_client_certificate_is_followed_once_its_key_fits(
    tmp_path: Path,
    authorities: tuple[Path, Path],
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        seen = runner.run(follow_client(tmp_path, authorities[0]))

    assert seen == ["first", "first", "second", "second"]


async def test_authority_is_followed_and_the_one_before_trusted_no_more(
    tmp_path: Path, authorities: tuple[Path, Path]
) -> None:
    one, two = authorities
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes((one / "ca.crt").read_bytes())
    async with serving(one) as server:
        # A session that is taken up says nothing of the certificate that is shown now.
        server.tls.num_tickets = 0
        async with Client(ConnectionConfig(server.url, ca_file=str(trusted))) as client:
            await ask(client)
            server.show(two)
            with pytest.raises(Unreachable, match=r"(?i)certificate"):
                await ask(client)
            trusted.write_bytes((two / "ca.crt").read_bytes())
            await ask(client)
            server.show(one)
            with pytest.raises(Unreachable, match=r"(?i)certificate"):
                await ask(client)


def write_kubeconfig(path: Path, server: str, authority: Path, name: str) -> None:
    def embed(file: str) -> str:
        return base64.b64encode((authority / file).read_bytes()).decode()

    user = {
        "client-certificate-data": embed(f"{name}.crt"),
        "client-key-data": embed(f"{name}.key"),
    }
    cluster = {"server": server, "certificate-authority-data": embed("ca.crt")}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "me"}}],
        "current-context": "one",
    }
    path.write_text(yaml.safe_dump(content))


async def test_certificates_within_a_kubeconfig_are_followed(
    tmp_path: Path, authorities: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RELOAD_SECONDS", -1.0)
    path = tmp_path / "config"
    async with serving(authorities[0]) as server:
        write_kubeconfig(path, server.url, authorities[0], "first")
        async with Client(await load_config(str(path))) as client:
            assert await ask(client) == "first"
            write_kubeconfig(path, server.url, authorities[0], "second")
            assert await ask(client) == "second"


@pytest.mark.parametrize("watching", [False, True], ids=["request", "watch"])
async def test_connection_whose_certificate_is_refused_is_not_kept(
    tmp_path: Path, authorities: tuple[Path, Path], watching: bool
) -> None:
    authority = authorities[0]
    put(tmp_path, authority, "first")
    async with serving(authority) as server:
        server.keeps = True
        async with Client(build_config(server, authority, tmp_path)) as client:
            assert await ask(client) == "first"
            put(tmp_path, authority, "second")
            assert await ask(client) == "first", "a kept connection is as it was"
            server.admits = lambda name: name == "second"
            # A refused request is sent a second time, a watch is not.
            for _ in range(2 if watching else 1):
                with pytest.raises(Unauthorized):
                    await (look(client) if watching else ask(client))
            assert [await ask(client) for _ in range(3)] == ["second"] * 3
        assert len(server.connections) == 3, "a connection that is good is kept"


def build_context(authority: Path, clock: Callable[[], float] = time.time) -> RenewingContext:
    def build() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=authority / "ca.crt")
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    return RenewingContext(build, list, clock=clock)


async def ask_often(server: Server, context: ssl.SSLContext) -> list[bool]:
    """Open five connections one after another; return which of them resumed a session."""
    async with Client(ConnectionConfig(server.url, tls=context)) as client:
        for _ in range(5):
            await ask(client)
    return server.resumed


async def serve_often(authority: Path) -> list[bool]:
    async with serving(authority) as server:
        return await ask_often(server, build_context(authority))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connection_takes_up_the_session_of_an_earlier_one(
    authorities: tuple[Path, Path], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(serve_often(authorities[0])) == [False, True, True, True, True]


async def ask_at_once(authority: Path) -> int:
    async with serving(authority) as server:
        config = ConnectionConfig(server.url, tls=build_context(authority))
        async with Client(config) as client:
            for _ in range(2):
                await asyncio.gather(*(ask(client) for _ in range(16)))
        return sum(server.resumed)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connections_that_begin_at_once_wait_for_no_session(
    authorities: tuple[Path, Path], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(ask_at_once(authorities[0])) >= 16


async def test_session_is_not_taken_up_for_longer_than_it_may(
    authorities: tuple[Path, Path],
) -> None:
    now = time.time()
    # When each connection begins that has a session to take up.
    moments = iter([now, now, now + SESSION_SECONDS + 60.0, now])

    async with serving(authorities[0]) as server:
        resumed = await ask_often(server, build_context(authorities[0], lambda: next(moments)))

    assert resumed == [False, True, True, False, True]


async def test_server_that_does_not_know_a_session_is_reached_all_the_same(
    authorities: tuple[Path, Path],
) -> None:
    context = build_context(authorities[0])
    async with serving(authorities[0]) as server, serving(authorities[0]) as other:
        await ask_often(server, context)
        assert await ask_often(other, context) == [False, True, True, True, True]


async def test_session_is_of_a_client_as_it_was_and_not_taken_up_by_another(
    tmp_path: Path, authorities: tuple[Path, Path]
) -> None:
    authority = authorities[0]
    put(tmp_path, authority, "first")
    async with serving(authority) as server:
        async with Client(build_config(server, authority, tmp_path)) as client:
            names = [await ask(client), await ask(client)]
            put(tmp_path, authority, "second")
            names += [await ask(client), await ask(client)]

    assert names == ["first", "first", "second", "second"]
    assert server.resumed == [False, True, False, True]
