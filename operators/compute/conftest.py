"""Fixtures of the tests of compute: the operator beside a simulated KubeVirt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from libs.common.crd import build_crd
from libs.common.kinds import uid_of
from libs.common.testing.clock import Ahead
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.compute.api import RESOURCES
from operators.compute.cloud import Cloud
from operators.compute.controller import OPERATOR
from operators.compute.samples import build_instance, build_size
from tools.kubevirt_sim.attach import attach
from tools.kubevirt_sim.simulator import KubeVirtSim


@pytest.fixture
async def cloud(fake_api: FakeApi) -> AsyncIterator[Cloud]:
    """Run the operator and the simulator, with one Instance that runs."""
    for model in RESOURCES:
        fake_api.register(build_crd(model))
    runs: list[str] = []
    fake_api.store.listeners.append(lambda change: _note(change, runs))
    async with KubeVirtSim(fake_api.config) as sim:
        attach(sim, fake_api)
        clock = Ahead()
        async with OperatorHarness(
            OPERATOR, fake_api.config, clock=clock, watch_namespaces=("*",)
        ) as compute:
            cloud = Cloud(fake_api, sim, compute, clock, runs)
            fake_api.create(build_size())
            fake_api.create(build_size("large", cpus=4, memory="8Gi"))
            fake_api.create(build_instance("web"))
            await cloud.running()
            yield cloud


def _note(change: Any, runs: list[str]) -> None:
    if change.table == (VIRTUAL_MACHINE_INSTANCE.group, VIRTUAL_MACHINE_INSTANCE.plural):
        uid = uid_of(change.record.obj)
        if uid not in runs:
            runs.append(uid)
