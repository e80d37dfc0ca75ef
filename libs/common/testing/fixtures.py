"""pytest fixtures of the test kit; the root conftest loads them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from libs.common.client import Client
from libs.common.kinds import NAMESPACE, build_object
from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from libs.common.testing.fakeapi import FakeApi

_names = itertools.count()


@pytest.fixture(scope="session")
def kube_apiserver() -> Iterator[ControlPlane]:
    """Run a real API server for the whole test run; it starts in some seconds."""
    try:
        plane = ControlPlane()
    except AssetsMissing as err:
        pytest.skip(str(err))
    with plane:
        yield plane


@pytest.fixture
async def kube_client(kube_apiserver: ControlPlane) -> AsyncIterator[Client]:
    """Connect to the real API server with all rights."""
    async with Client(kube_apiserver.config, user_agent="test") as client:
        yield client


@pytest.fixture
async def kube_namespace(kube_client: Client) -> str:
    """Make a namespace on the real API server that no other test uses."""
    name = f"test-{next(_names)}"
    await kube_client.create(NAMESPACE, build_object(NAMESPACE, name))
    return name


@pytest.fixture
async def fake_api() -> AsyncIterator[FakeApi]:
    """Run a fake API server over HTTP."""
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def fake_client(fake_api: FakeApi) -> AsyncIterator[Client]:
    """Connect to the fake API server."""
    async with Client(fake_api.config, user_agent="test") as client:
        yield client
