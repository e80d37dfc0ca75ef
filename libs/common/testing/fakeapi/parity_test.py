"""The fake answers as a real kube-apiserver does."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from libs.common.testing import fakeapi
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.extract import GROUP_VERSIONS, build_builtins
from libs.common.testing.fakeapi.parity import Recorder, render_differences
from libs.common.testing.fakeapi.parity_appliers import APPLIERS
from libs.common.testing.fakeapi.parity_custom import CUSTOM
from libs.common.testing.fakeapi.parity_identity import IDENTITY
from libs.common.testing.fakeapi.parity_scenarios import BUILTIN, Scenario
from libs.common.testing.fakeapi.parity_tables import TABLES
from libs.common.testing.fakeapi.rest import RestClient

pytestmark = pytest.mark.apiserver
SCENARIOS = {**BUILTIN, **APPLIERS, **CUSTOM, **IDENTITY, **TABLES}
_numbers = itertools.count()


@pytest_asyncio.fixture
async def real(kube_apiserver: ControlPlane) -> AsyncIterator[RestClient]:
    config = kube_apiserver.config
    token = (await config.authorization()).removeprefix("Bearer ")
    async with RestClient(config.server, token=token, tls=config.ssl_context() or True) as rest:
        yield rest


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_fake_answers_as_the_real_server_does(name: str, real: RestClient) -> None:
    scenario = SCENARIOS[name]
    expected = await play(scenario, real)
    async with FakeApi(require_namespaces=True) as api, RestClient(api.url) as rest:
        api.collector.pause()  # A bare kube-apiserver has no controllers.
        actual = await play(scenario, rest)

    assert not (differences := render_differences(expected, actual)), differences


async def test_the_built_in_kinds_are_those_of_the_real_server(real: RestClient) -> None:
    paths = [f"openapi/v3/{name}" for name in GROUP_VERSIONS] + [*GROUP_VERSIONS, "version"]
    documents = {path: (await real.get(f"/{path}")).body for path in paths}

    expected = build_builtins(documents.__getitem__)
    actual = orjson.loads(Path(fakeapi.__file__).with_name("builtins.json").read_bytes())

    assert actual == expected, "run python -m libs.common.testing.fakeapi.extract"


async def test_the_documents_of_the_fake_describe_the_built_in_kinds() -> None:
    async with FakeApi() as api, RestClient(api.url) as rest:
        paths = [f"openapi/v3/{name}" for name in GROUP_VERSIONS] + [*GROUP_VERSIONS, "version"]
        documents = {path: (await rest.get(f"/{path}")).body for path in paths}

    held = orjson.loads(Path(fakeapi.__file__).with_name("builtins.json").read_bytes())

    made = build_builtins(documents.__getitem__)
    for content in (made, held):
        content["resources"].sort(key=lambda each: (each["group"], each["version"], each["name"]))
    assert made == held


async def play(scenario: Scenario, rest: RestClient) -> list[str]:
    """Return the recording of a scenario in a namespace of its own."""
    namespace = f"parity-{next(_numbers):04}"
    made = await rest.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert made.status == 201
    recorder = Recorder(rest, namespace)
    await scenario(recorder)
    return recorder.lines
