"""Fixtures of the tests of network: its kinds on a fake API server, and the operator."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from libs.common.crd import build_crd
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.contracts.compute import INSTANCE
from operators.network.api.v1alpha1 import Firewall, Network, ProviderNetwork
from operators.network.controller import OPERATOR


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run an API server that knows networks, firewalls and instances, and no Multus."""
    async with FakeApi() as api:
        api.register(build_crd(Network))
        api.register(build_crd(Firewall))
        api.register(build_crd(ProviderNetwork))
        api.register(build_loose_crd(INSTANCE, None, ("status",)))
        yield api


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator for namespace default."""
    async with OperatorHarness(
        OPERATOR, api.config, watch_namespaces=("default",), multus_poll_seconds=1
    ) as harness:
        yield harness
