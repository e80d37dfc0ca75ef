"""Fixtures of the tests over HTTP, on the fake and on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.client import Client
from libs.common.crd import build_crd
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
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


@pytest.fixture
async def client(kube_client: Client) -> Client:
    """Serve PodSets on a real API server."""
    await serve(kube_client, PodSet)
    return kube_client


@pytest.fixture
async def real_operator(
    client: Client, kube_apiserver: ControlPlane, kube_namespace: str
) -> AsyncIterator[OperatorHarness]:
    """Run the operator against the real API server, in one namespace."""
    settings: dict[str, Any] = {"watch_namespaces": (kube_namespace,)}
    async with OperatorHarness(OPERATOR, kube_apiserver.config, **settings) as harness:
        yield harness
