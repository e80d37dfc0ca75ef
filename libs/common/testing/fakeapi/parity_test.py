"""The fake answers as a real kube-apiserver does."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.parity import Recorder, render_differences
from libs.common.testing.fakeapi.parity_custom import CUSTOM
from libs.common.testing.fakeapi.parity_scenarios import BUILTIN, Scenario
from libs.common.testing.fakeapi.rest import Rest

pytestmark = pytest.mark.apiserver
SCENARIOS = {**BUILTIN, **CUSTOM}
_numbers = itertools.count()


@pytest_asyncio.fixture
async def real(kube_apiserver: ControlPlane) -> AsyncIterator[Rest]:
    config = kube_apiserver.config
    token = (await config.authorization()).removeprefix("Bearer ")
    async with Rest(config.server, token=token, tls=config.ssl_context() or True) as rest:
        yield rest


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_fake_answers_as_the_real_server_does(name: str, real: Rest) -> None:
    scenario = SCENARIOS[name]
    expected = await play(scenario, real)
    async with FakeApi(require_namespaces=True) as api, Rest(api.url) as rest:
        api.collector.pause()  # A bare kube-apiserver has no controllers.
        actual = await play(scenario, rest)

    assert not (differences := render_differences(expected, actual)), differences


async def play(scenario: Scenario, rest: Rest) -> list[str]:
    """Return the recording of a scenario in a namespace of its own."""
    namespace = f"parity-{next(_numbers):04}"
    made = await rest.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert made.status == 201
    recorder = Recorder(rest, namespace)
    await scenario(recorder)
    return recorder.lines
