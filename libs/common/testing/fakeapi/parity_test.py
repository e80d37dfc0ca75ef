"""The built-in kinds of the fake API are those of a real kube-apiserver."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from libs.common.testing import fakeapi
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.extract import GROUP_VERSIONS, build_builtins
from libs.common.testing.fakeapi.rest import RestClient

pytestmark = pytest.mark.apiserver


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
