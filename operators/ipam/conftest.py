"""Fixtures of the tests of ipam: the kinds on a fake API server, and a simulated KubeVirt."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lab.kubevirt_sim.fixtures import kubevirt_sim
from lab.kubevirt_sim.instant_balancer import attach_load_balancer
from libs.common.crd import build_crd
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.ipam.api import RESOURCES
from operators.ipam.controller import OPERATOR

__all__ = ["api", "harness", "kubevirt_sim"]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run an API server with the kinds of ipam, a load balancer and no KubeVirt."""
    async with FakeApi() as api:
        for model in RESOURCES:
            api.register(build_crd(model))
        attach_load_balancer(api)
        yield api


@pytest.fixture
async def harness(api: FakeApi) -> AsyncIterator[OperatorHarness]:
    """Run the operator for namespace default."""
    async with OperatorHarness(OPERATOR, api.config, watch_namespaces=("default",)) as harness:
        yield harness
