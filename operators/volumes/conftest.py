"""Fixtures of the tests over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from libs.common.crd import build_crd
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.volumes.api.v1alpha1 import DemoVolume
from operators.volumes.controller import OPERATOR
from operators.volumes.samples import (
    build_class,
)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run an API server that knows DemoVolume and two classes."""
    async with FakeApi() as api:
        api.register(build_crd(DemoVolume))
        api.create(build_class())
        api.create(build_class("lazy", waits=True))
        yield api


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator for namespace default."""
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default",), snapshot_api_poll_seconds=1
    ) as harness:
        yield harness
