"""Fixtures of the tests of compute: the operator and a simulated KubeVirt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from lab.kubevirt_sim.attach import attach
from lab.kubevirt_sim.direct import annotate_new
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.crd import build_crd
from libs.common.kinds import Key, Kind, Manifest, uid_of
from libs.common.testing.clock import AdvancedClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiView,
    VmView,
)
from operators.compute.api import RESOURCES
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import FINAL_PHASES, OPERATION
from operators.compute.controller import OPERATOR
from operators.compute.samples import build_instance, build_operation, build_size

WEB: Final = Key("default", "web")
"""Key of the Instance."""
OP: Final = Key("default", "op")
"""Key of the Operation."""


@dataclass
class Cloud:
    """The API server, the simulator and the operator of a test.

    Attributes:
        runs: UIDs of the runs of machines that there were, in their order.
    """

    api: FakeApi
    sim: KubeVirtSim
    compute: OperatorHarness
    clock: AdvancedClock
    runs: list[str]

    async def converged(self) -> None:
        """Wait until neither the operator nor the simulator has anything to do."""
        version = -1
        while version != self.api.store.version:
            version = self.api.store.version
            await self.sim.converged()
            await self.compute.converged()

    async def operate(self, type_: str, name: str = "op", **spec: Any) -> Manifest:
        """Ask for an operation and wait for its end."""
        self.api.create(build_operation(type_, name, **spec))
        return await self.ended(name)

    async def ended(self, name: str = "op") -> Manifest:
        """Wait for the end of an operation; returns its status."""

        def probe() -> bool:
            status = self.api.get(OPERATION, ("default", name)).get("status") or {}
            return status.get("phase") in FINAL_PHASES

        await self.compute.eventually(probe, "the operation has ended")
        status: Manifest = self.api.get(OPERATION, ("default", name))["status"]
        return status

    async def running(self) -> VmiView:
        """Wait until the Instance runs; returns its run."""

        def probe() -> bool:
            held = self.api.find(INSTANCE, WEB)
            return held is not None and (held.get("status") or {}).get("phase") == "Running"

        await self.compute.eventually(probe, "the Instance runs")
        return self.run()

    def run(self) -> VmiView:
        """Return the run of the machine."""
        return VmiView.parse(self.api.get(VIRTUAL_MACHINE_INSTANCE, WEB))

    def mac(self) -> str:
        """Return the MAC address of the guest."""
        run = self.api.get(VIRTUAL_MACHINE_INSTANCE, WEB)
        return str(run["status"]["interfaces"][0]["mac"])

    def machine(self) -> VmView:
        """Return the machine."""
        return VmView.parse(self.api.get(VIRTUAL_MACHINE, WEB))

    def annotate_new(
        self, kind: Kind, note: str, value: str, chosen: Callable[[Manifest], bool] = bool
    ) -> None:
        """Give each object of a kind that is made from now on an order for the simulator."""
        annotate_new(self.api, kind, note, value, chosen)

    def deletions(self) -> int:
        """Return how many runs were ended on request."""
        kind = VIRTUAL_MACHINE_INSTANCE
        return len([each for each in self.api.requests.select("delete", kind) if each.changed])


@pytest.fixture
async def cloud(fake_api: FakeApi) -> AsyncIterator[Cloud]:
    """Run the operator and the simulator, with one Instance that runs."""
    for model in RESOURCES:
        fake_api.register(build_crd(model))
    runs: list[str] = []
    fake_api.store.listeners.append(lambda change: _note(change, runs))
    async with KubeVirtSim(fake_api.config) as sim:
        attach(sim, fake_api)
        clock = AdvancedClock()
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
