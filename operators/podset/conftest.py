"""Fixtures of the tests over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from libs.common.crd import build_crd
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.podset.api import PodSet
from operators.podset.controller import OPERATOR


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run a fake API server that serves PodSets."""
    async with FakeApi() as api:
        api.register(build_crd(PodSet))
        yield api


@pytest.fixture
async def operator(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator against it."""
    async with OperatorHarness(OPERATOR, api.config) as harness:
        yield harness
