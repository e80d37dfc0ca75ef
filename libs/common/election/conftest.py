"""Fixtures of the tests of the election."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from libs.common.testing.candidates import (
    CandidateGroup,
)
from libs.common.testing.fakeapi import FakeApi


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def group(api: FakeApi) -> AsyncIterator[CandidateGroup]:
    group = CandidateGroup(api)
    yield group
    api.faults.clear()
    await asyncio.gather(*(candidate.elector.stop() for candidate in group.candidates))
