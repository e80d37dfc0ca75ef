"""Fixtures of the tests of the fake API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.rest import RestClient


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Give a running fake API."""
    async with FakeApi() as server:
        yield server


@pytest_asyncio.fixture
async def rest(api: FakeApi) -> AsyncIterator[RestClient]:
    """Give a plain HTTP client of it."""
    async with RestClient(api.url) as client:
        yield client
