"""A write that waited for credentials or a connection is not sent after leadership was lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from libs.common.client import Client
from libs.common.errors import NotLeading
from libs.common.kinds import CONFIG_MAP, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import turns, until

MAP = build_object(CONFIG_MAP, "a", "default")


class Leadership:
    """A leadership that can be lost."""

    def __init__(self) -> None:
        self.held = True

    def check(self) -> None:
        if not self.held:
            raise NotLeading


@pytest.fixture
def leadership() -> Leadership:
    return Leadership()


async def lose_during(
    client: Client, leadership: Leadership, waiting: asyncio.Event, end: asyncio.Event
) -> None:
    """Write, and lose the leadership while the write waits."""
    write = asyncio.create_task(client.create(CONFIG_MAP, MAP))
    await waiting.wait()
    leadership.held = False
    end.set()
    with pytest.raises(NotLeading):
        await write


async def test_fence_is_checked_after_slow_credentials(
    fake_api: FakeApi, leadership: Leadership
) -> None:
    waiting, end = asyncio.Event(), asyncio.Event()

    async def run_plugin() -> str:
        waiting.set()
        await end.wait()
        return ""

    config = replace(fake_api.config, authorization=run_plugin)
    async with Client(config, fence=leadership.check) as client:
        await lose_during(client, leadership, waiting, end)

    assert fake_api.writes() == []


async def test_fence_is_checked_after_a_slow_connection(
    fake_api: FakeApi, leadership: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, end = asyncio.Event(), asyncio.Event()
    connect = aiohttp.TCPConnector._create_connection

    async def connect_slowly(self: aiohttp.TCPConnector, *args: Any, **options: Any) -> Any:
        waiting.set()
        await end.wait()
        return await connect(self, *args, **options)

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", connect_slowly)
    async with Client(fake_api.config, fence=leadership.check) as client:
        await lose_during(client, leadership, waiting, end)

    assert fake_api.writes() == []


async def test_fence_is_asked_again_before_a_retry(fake_api: FakeApi) -> None:
    asked = 0

    def fence() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:  # Once before the first try, once when it is sent.
            raise NotLeading

    fake_api.fail("POST", status=429, times=None, retry_after=0)
    async with Client(fake_api.config, fence=fence) as client:
        with pytest.raises(NotLeading):
            await client.create(CONFIG_MAP, MAP)

    assert len(fake_api.requests) == 1


async def test_fence_is_asked_after_the_wait_for_a_turn(fake_api: FakeApi) -> None:
    leading = True

    def fence() -> None:
        if not leading:
            raise NotLeading

    held = fake_api.hang("GET")
    async with Client(fake_api.config, fence=fence, max_in_flight=1) as client:
        read = asyncio.create_task(client.list(CONFIG_MAP))
        await until(lambda: len(fake_api.requests) == 1)
        write = asyncio.create_task(client.create(CONFIG_MAP, MAP))
        await turns()
        leading = False
        held.release()

        with pytest.raises(NotLeading):
            await write
        await read
    assert fake_api.writes() == []
