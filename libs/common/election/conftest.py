"""Fixtures of the tests of the election."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from libs.common.testing.arena import (
    Arena,
)
from libs.common.testing.fakeapi import FakeApi


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def arena(api: FakeApi) -> AsyncIterator[Arena]:
    arena = Arena(api)
    yield arena
    api.faults.clear()
    await asyncio.gather(*(contender.elector.stop() for contender in arena.contenders))
