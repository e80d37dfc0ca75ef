"""pytest fixtures of the simulator; a conftest imports those that its tests use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lab.kubevirt_sim.attach import attach
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.testing.fakeapi import FakeApi


@pytest.fixture
async def kubevirt_sim(fake_api: FakeApi) -> AsyncIterator[KubeVirtSim]:
    """Simulate KubeVirt and CDI on the fake API server, in no time, with three nodes."""
    async with KubeVirtSim(fake_api.config) as sim:
        attach(sim, fake_api)
        yield sim
