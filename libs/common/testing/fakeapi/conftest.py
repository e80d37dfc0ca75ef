"""Fixtures of the tests of the fake API."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest_asyncio

from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.parity import Compare, Recorder, Scenario, render_differences
from libs.common.testing.fakeapi.rest import RestClient

_numbers = itertools.count()


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


@pytest_asyncio.fixture
async def real(kube_apiserver: ControlPlane) -> AsyncIterator[RestClient]:
    """Give a plain HTTP client of a real API server."""
    config = kube_apiserver.config
    token = (await config.authorization()).removeprefix("Bearer ")
    async with RestClient(config.server, token=token, tls=config.ssl_context() or True) as client:
        yield client


@pytest_asyncio.fixture
async def compare(real: RestClient) -> Compare:
    """Give a function that plays a scenario against both servers and compares the recordings."""

    async def play_both(scenario: Scenario) -> None:
        expected = await _play(scenario, real)
        async with FakeApi(require_namespaces=True) as api, RestClient(api.url) as fake:
            api.collector.pause()  # A bare kube-apiserver has no controllers.
            actual = await _play(scenario, fake)
        assert not (differences := render_differences(expected, actual)), differences

    return play_both


async def _play(scenario: Scenario, rest: RestClient) -> list[str]:
    """Return the recording of a scenario in a namespace of its own."""
    namespace = f"parity-{next(_numbers):04}"
    made = await rest.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert made.status == 201
    recorder = Recorder(rest, namespace)
    await scenario(recorder)
    return recorder.lines
