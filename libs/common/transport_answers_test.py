"""Answers that no API server gives, but what stands before it may: redirects, pages, dates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.errors import (
    ApiError,
    Forbidden,
    ServerError,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from libs.common.kinds import CONFIG_MAP, Key, Manifest, build_object

KEY = Key("default", "a")
MAP: Manifest = build_object(CONFIG_MAP, "a", "default")


@asynccontextmanager
async def serving(answer: Callable[[web.BaseRequest], web.Response]) -> AsyncIterator[str]:
    """Serve one answer for everything; for what the fake API does not do wrong."""

    async def handle(request: web.BaseRequest) -> web.Response:
        return answer(request)

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirect_is_a_failure_and_is_not_followed(status: int) -> None:
    reached: list[str] = []

    def answer(request: web.BaseRequest) -> web.Response:
        reached.append(request.path)
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    async def authorization() -> str:
        return "Bearer secret"

    async with (
        serving(answer) as url,
        Client(ConnectionConfig(url, authorization=authorization)) as client,
    ):
        with pytest.raises(ApiError):
            await client.get(CONFIG_MAP, KEY)
        with pytest.raises(ApiError):
            await client.create(CONFIG_MAP, MAP)
        with pytest.raises(ApiError):
            await anext(client.watch(CONFIG_MAP, resource_version="1"))

    assert "/elsewhere" not in reached
    assert len(reached) == 3


async def test_answer_that_is_not_json_is_no_answer() -> None:
    async with (
        serving(lambda _: web.Response(text="<html>log in</html>")) as url,
        Client(ConnectionConfig(url)) as client,
    ):
        with pytest.raises(Unreachable, match="not JSON"):
            await client.get(CONFIG_MAP, KEY)
        with pytest.raises(UnknownOutcome, match="not JSON"):
            await client.create(CONFIG_MAP, MAP)


async def test_failure_that_is_not_json_keeps_its_text() -> None:
    async with (
        serving(lambda _: web.Response(status=500, text="out of cheese")) as url,
        Client(ConnectionConfig(url)) as client,
    ):
        with pytest.raises(ServerError, match="out of cheese"):
            await client.get(CONFIG_MAP, KEY)


ETCD = {"kind": "Status", "code": 500, "message": "etcdserver: request timed out"}
"""What a kube-apiserver answers when its storage gives up waiting for a write."""
WEBHOOK = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "no endpoints"}
DENIED = 'admission webhook "a.example.com" denied the request: no'


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, ETCD), (500, "upstream failed"), (503, "upstream was reset"), (520, "")],
)
async def test_write_that_failed_for_no_reason_of_the_api_is_unknown(
    status: int, body: object
) -> None:
    def answer(_: web.BaseRequest) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status)

    async with serving(answer) as url, Client(ConnectionConfig(url)) as client:
        with pytest.raises(UnknownOutcome, match=str(status)):
            await client.create(CONFIG_MAP, MAP)
        with pytest.raises(ServerError):
            await client.get(CONFIG_MAP, KEY)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (WEBHOOK, ServerError),
        ({"code": 500, "message": DENIED}, Forbidden),
        ({"code": 504, "message": DENIED}, Forbidden),
    ],
)
async def test_write_that_the_api_failed_at_with_a_reason_was_not_done(
    body: object, error: type[ApiError]
) -> None:
    async with (
        serving(lambda _: web.json_response(body, status=500)) as url,
        Client(ConnectionConfig(url)) as client,
    ):
        with pytest.raises(error, match="no"):
            await client.create(CONFIG_MAP, MAP)


async def test_write_that_a_server_in_its_end_refuses_is_sent_again() -> None:
    """A kube-apiserver that shuts down says so as plain text."""
    answers = iter([web.Response(status=503, text="bye", headers={"Retry-After": "0"})])
    async with (
        serving(lambda _: next(answers, web.json_response(MAP))) as url,
        Client(ConnectionConfig(url)) as client,
    ):
        assert await client.create(CONFIG_MAP, MAP) == MAP


@pytest.mark.parametrize("wait", ["inf", "nan", "-1", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_wait_that_is_no_number_of_seconds_is_none(wait: str) -> None:
    header = {"Retry-After": wait}
    async with (
        serving(lambda _: web.Response(status=429, headers=header)) as url,
        Client(ConnectionConfig(url)) as client,
    ):
        with pytest.raises(TooManyRequests) as caught:
            await client.get(CONFIG_MAP, KEY)

    assert caught.value.retry_after is None


async def test_credentials_are_asked_for_before_each_request() -> None:
    tokens = iter(["one", "two"])
    seen: list[str | None] = []

    async def authorization() -> str:
        return f"Bearer {next(tokens)}"

    def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({})

    async with (
        serving(answer) as url,
        Client(ConnectionConfig(url, authorization=authorization)) as client,
    ):
        await client.raw("GET", "/version")
        await client.raw("GET", "/version")

    assert seen == ["Bearer one", "Bearer two"]
