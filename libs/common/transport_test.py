"""What a failed request means, by real HTTP against the fake API and against broken servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from libs.common.client import Client
from libs.common.config import ConnectionConfig, _TokenFile
from libs.common.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnknownOutcome,
    Unreachable,
)
from libs.common.kinds import CONFIG_MAP, Key, Manifest, build_object
from libs.common.metrics import Metrics
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import advance_until, until

KEY = Key("default", "a")
MAP: Manifest = build_object(CONFIG_MAP, "a", "default")
type Write = Callable[[Client], Awaitable[Manifest]]
WRITES: dict[str, Write] = {
    "POST": lambda client: client.create(
        CONFIG_MAP, {**MAP, "metadata": {**MAP["metadata"], "name": "b"}}
    ),
    "PUT": lambda client: client.replace(CONFIG_MAP, MAP),
    "PATCH": lambda client: client.patch(CONFIG_MAP, KEY, {"data": {"x": "1"}}),
    "DELETE": lambda client: client.delete(CONFIG_MAP, KEY, uid=""),
}
every_write = pytest.mark.parametrize("method", list(WRITES))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (418, ApiError),
        (422, Invalid),
        (429, TooManyRequests),
        (500, ServerError),
        (503, ServerError),
        (504, ServerError),
    ],
)
async def test_status_decides_the_error(
    fake_api: FakeApi, fake_client: Client, status: int, error: type[ApiError]
) -> None:
    fake_api.fail("GET", status=status, message="the server says why", times=None)

    with pytest.raises(ApiError) as caught:
        await fake_client.get(CONFIG_MAP, KEY)

    assert type(caught.value) is error
    assert caught.value.status == status
    assert "GET /api/v1/namespaces/default/configmaps/a" in str(caught.value)
    assert "the server says why" in str(caught.value)


async def test_taken_name_is_told_apart_from_a_conflict(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.create(MAP)

    with pytest.raises(AlreadyExists):
        await fake_client.create(CONFIG_MAP, MAP)


async def test_causes_of_an_invalid_object_are_kept(fake_client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        await fake_client.create(
            CONFIG_MAP, {**MAP, "metadata": {"name": "No Name", "namespace": "default"}}
        )

    assert [field for field, _ in caught.value.causes()] == ["metadata.name"]


@pytest.mark.parametrize("status", [429, 503])
@every_write
async def test_refused_write_is_sent_again_when_the_server_says_when(
    fake_api: FakeApi, status: int, method: str
) -> None:
    clock = FakeClock()
    fake_api.create(MAP)
    fake_api.fail(method, status=status, times=2, retry_after=3)
    async with Client(fake_api.config, clock=clock) as client:
        write = asyncio.ensure_future(WRITES[method](client))
        assert await advance_until(clock, write.done) == 6

        await write
    assert [each.status for each in fake_api.requests][:2] == [status, status]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_failure_without_a_time_is_not_retried(
    fake_api: FakeApi, fake_client: Client, status: int
) -> None:
    fake_api.fail(status=status, times=None)

    with pytest.raises(ApiError):
        await fake_client.get(CONFIG_MAP, KEY)
    with pytest.raises(ApiError):
        await fake_client.create(CONFIG_MAP, MAP)

    assert len(fake_api.requests) == 2


async def test_write_that_the_server_failed_at_is_not_sent_again(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.fail("POST", status=500, times=None, retry_after=0)

    with pytest.raises(ServerError):
        await fake_client.create(CONFIG_MAP, MAP)

    assert len(fake_api.requests) == 1


async def test_long_wait_is_left_to_the_back_off(fake_api: FakeApi, fake_client: Client) -> None:
    fake_api.fail(status=429, times=None, retry_after=60)

    with pytest.raises(TooManyRequests) as caught:
        await fake_client.get(CONFIG_MAP, KEY)

    assert caught.value.retry_after == 60
    assert len(fake_api.requests) == 1


async def test_retries_come_to_an_end(fake_api: FakeApi, fake_client: Client) -> None:
    fake_api.fail(status=429, times=None, retry_after=0)

    with pytest.raises(TooManyRequests):
        await fake_client.get(CONFIG_MAP, KEY)

    assert len(fake_api.requests) == 4


@pytest.mark.parametrize("warm", [False, True], ids=["new connection", "kept connection"])
@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
@every_write
async def test_write_without_answer_is_unknown_and_sent_once(
    fake_api: FakeApi, fake_client: Client, method: str, done: bool, warm: bool
) -> None:
    fake_api.create(MAP)
    if warm:
        await fake_client.get(CONFIG_MAP, KEY)
    mark = fake_api.mark()
    fake_api.fail(method, lost_response=done, dropped=not done)

    with pytest.raises(UnknownOutcome, match=method):
        await WRITES[method](fake_client)

    assert len(fake_api.writes(mark)) == 1


@pytest.mark.parametrize("status", [502, 504])
@every_write
async def test_write_that_a_gateway_gave_up_on_is_unknown(
    fake_api: FakeApi, fake_client: Client, method: str, status: int
) -> None:
    fake_api.fail(method, status=status, times=None, retry_after=0)

    with pytest.raises(UnknownOutcome):
        await WRITES[method](fake_client)

    assert len(fake_api.requests) == 1


@every_write
async def test_write_that_is_not_answered_in_time_is_unknown(
    fake_api: FakeApi, method: str
) -> None:
    fake_api.hang(times=None)
    async with Client(fake_api.config, request_timeout=2) as client:
        with pytest.raises(UnknownOutcome):
            await WRITES[method](client)

    assert len(fake_api.requests) == 1


async def test_read_that_is_not_answered_is_sent_again(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.create(MAP)
    fake_api.fail("GET", dropped=True, times=2)

    await fake_client.get(CONFIG_MAP, KEY)

    assert len(fake_api.requests) == 3


async def test_read_that_is_never_answered_is_unreachable(fake_api: FakeApi) -> None:
    fake_api.hang(times=None)
    async with Client(fake_api.config, request_timeout=2) as client:
        with pytest.raises(Unreachable):
            await client.get(CONFIG_MAP, KEY)

    assert len(fake_api.requests) == 4


@every_write
async def test_refused_connection_means_that_nothing_was_sent(method: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        metrics = Metrics()
        async with Client(ConnectionConfig(url), metrics=metrics.client("here")) as client:
            with pytest.raises(Unreachable):
                await WRITES[method](client)
    labels = {"code": "<error>", "method": method, "host": "here"}
    assert metrics.value("rest_client_requests_total", **labels) == 1, "the back-off tries again"


@every_write
async def test_fence_holds_back_each_write_and_no_read(fake_api: FakeApi, method: str) -> None:
    def fence() -> None:
        raise NotLeading

    fake_api.create(MAP)
    async with Client(fake_api.config, fence=fence) as client:
        await client.get(CONFIG_MAP, KEY)
        with pytest.raises(NotLeading):
            await WRITES[method](client)

    assert [each.method for each in fake_api.requests] == ["GET"]


async def test_requests_in_flight_are_bounded_and_watches_are_not(fake_api: FakeApi) -> None:
    held = fake_api.hang("list", times=None)
    async with Client(fake_api.config, max_in_flight=2) as client:
        lists = [asyncio.create_task(client.list(CONFIG_MAP)) for _ in range(5)]
        await until(lambda: len(fake_api.requests) == 2)
        stream = client.watch(CONFIG_MAP, resource_version="1", inactivity_seconds=120)
        watch = asyncio.create_task(anext(stream))
        await until(lambda: fake_api.watches.count(CONFIG_MAP))

        assert [each.verb for each in fake_api.requests].count("list") == 2
        held.release()
        await asyncio.gather(*lists)
        fake_api.create(MAP)
        assert (await watch).type == "ADDED"
        await stream.aclose()


async def test_requests_are_counted_by_status(fake_api: FakeApi) -> None:
    metrics = Metrics()

    def count(code: str, method: str) -> float | None:
        labels = {"code": code, "method": method, "host": "here"}
        return metrics.value("rest_client_requests_total", **labels)

    def fence() -> None:
        raise NotLeading

    fake_api.create(MAP)
    fake_api.fail("GET", dropped=True)
    async with Client(fake_api.config, metrics=metrics.client("here"), fence=fence) as client:
        await client.get(CONFIG_MAP, KEY)
        with pytest.raises(NotLeading):
            await client.create(CONFIG_MAP, MAP)

    assert count("<error>", "GET") == 1
    assert count("200", "GET") == 1
    assert count("<error>", "POST") is None, "a write that was held back was never sent"


def test_aiohttp_still_has_the_switch_that_we_turn_off() -> None:
    """Without it aiohttp would send PUT and DELETE twice, unseen."""
    assert "_retry_connection" in aiohttp.ClientSession.ATTRS


@pytest.mark.apiserver
async def test_certificate_of_the_server_is_checked(kube_apiserver: ControlPlane) -> None:
    config = kube_apiserver.config
    good = [config, replace(config, tls_server_name="kubernetes"), replace(config, verify=False)]
    for each in good:
        async with Client(each) as client:
            assert (await client.raw("GET", "/version"))["major"] == "1"
    bad = [replace(config, tls_server_name="example.com"), replace(config, ca_file="")]
    for each in bad:
        async with Client(each) as client:
            with pytest.raises(Unreachable, match=r"(?i)certificate"):
                await client.create(CONFIG_MAP, MAP)


class Leadership:
    """A fence that lets writes through until leadership is lost."""

    lost = False

    def __call__(self) -> None:
        if self.lost:
            raise NotLeading


@pytest.mark.parametrize("moment", ["credentials", "connection"])
async def test_write_is_not_sent_when_leadership_is_lost_on_its_way(
    fake_api: FakeApi, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A plugin for credentials or a stalled handshake may take longer than the Lease lasts."""
    leadership, begun, proceed = Leadership(), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        begun.set()
        await proceed.wait()

    async def authorize() -> str:
        if moment == "credentials":
            await hold()
        return ""

    async def connect(self: Any, *args: Any, **options: Any) -> Any:
        if moment == "connection":
            await hold()
        return await before(self, *args, **options)

    before = aiohttp.TCPConnector._create_connection
    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", connect)
    config = replace(fake_api.config, authorization=authorize)
    async with Client(config, fence=leadership) as client:
        made = build_object(CONFIG_MAP, "a", "default")
        writing = asyncio.create_task(client.create(CONFIG_MAP, made))
        await begun.wait()
        leadership.lost = True
        proceed.set()

        with pytest.raises(NotLeading):
            await writing
    assert fake_api.writes() == []


async def test_credentials_that_do_not_come_in_time_mean_that_nothing_was_sent(
    fake_api: FakeApi,
) -> None:
    async def hang() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    config = replace(fake_api.config, authorization=hang)
    async with Client(config, request_timeout=0.05) as client:
        with pytest.raises(Unreachable, match="credentials"):
            await client.create(CONFIG_MAP, build_object(CONFIG_MAP, "a", "default"))


async def test_credentials_that_are_refused_are_read_again_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with FakeApi(token="new") as api:
        config = replace(api.config, authorization=_TokenFile(token))
        token.write_text("new")
        async with Client(config) as client:
            made = await client.create(CONFIG_MAP, build_object(CONFIG_MAP, "a", "default"))
            assert made["metadata"]["name"] == "a"


async def test_server_timeout_of_a_write_is_an_unknown_outcome(
    fake_api: FakeApi, fake_client: Client
) -> None:
    fake_api.fail("create", CONFIG_MAP, status=500, reason="ServerTimeout", message="try again")

    with pytest.raises(UnknownOutcome):
        await fake_client.create(CONFIG_MAP, build_object(CONFIG_MAP, "a", "default"))
