"""Calls to guards that answer in parts, too much, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import batched
from pathlib import Path

import pytest

from libs.common.testing.certificates import create_certificates
from operators.jmxexporter import guards
from operators.jmxexporter.guard_calls import GuardCall, GuardKey, GuardState
from operators.jmxexporter.guards import Guards

HASH = "a" * 64
ANSWER = f"id=shop\nconfigHash={HASH}\nversion=1\nnonce=0\n".encode()


@contextlib.asynccontextmanager
async def guard(parts: list[bytes], tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve a guard that sends its response in parts, and return its port."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ask(*ports: int, tls: bool = False, ahead: timedelta = timedelta()) -> GuardState:
    call = GuardCall(GuardKey("c"), "127.0.0.1", ports, "shop", tls, "", HASH)
    client = Guards()
    try:
        await client.make(
            "uid", [call], None, lambda: datetime.now(UTC) + ahead, lambda: None, namespace="team"
        )
        while call.key not in client.states("uid"):
            await asyncio.sleep(0.01)
        return client.states("uid")[call.key]
    finally:
        await client.close()


async def test_answer_in_parts_is_read_to_its_end() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)

    async with guard([head, *map(bytes, batched(ANSWER, 20, strict=False))]) as port:
        assert (await ask(port)).config_hash == HASH


@pytest.mark.parametrize(("days", "ended"), [(0, False), (3, True)])
async def test_end_of_a_certificate_is_a_failure_of_scrapes(
    tmp_path: Path, days: int, ended: bool
) -> None:
    """Prometheus refuses it then in all JVMs at once, which no guard can see."""
    create_certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    async with guard([b"HTTP/1.1 200 OK\r\n\r\n", ANSWER], tls) as port:
        found = await ask(port, tls=True, ahead=timedelta(days=days))

    assert found.config_hash == HASH
    assert ("spec.tls.secretName" in found.scrape) is ended


async def test_answer_without_end_is_cut() -> None:
    async with guard([b"HTTP/1.1 200 OK\r\n\r\n", ANSWER, *[b"x" * 1024] * 100]) as port:
        assert (await ask(port)).config_hash == HASH


async def test_pod_that_never_answers_occupies_the_operator_for_one_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each of its ports would have the whole time, while other pods wait."""
    monkeypatch.setattr(guards, "_SECONDS", 0.5)

    async with guard([b"HTTP/1.1 200 OK\r\nX: ", *[b"x"] * 10_000]) as port:
        found = await ask(port, port, port)

    assert (found.failures, found.config_hash) == (1, "")
    assert "answered in time" in found.message


async def test_pod_cannot_say_when_a_certificate_ends() -> None:
    answer = ANSWER + b"certificateEnd=2020-01-01\n"

    async with guard([b"HTTP/1.1 200 OK\r\n\r\n", answer]) as port:
        found = await ask(port)

    assert (found.config_hash, found.scrape) == (HASH, "")
