"""One Instance in a simulated KubeVirt, for tests over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from libs.common.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiView,
    VmView,
)
from libs.common.kinds import Key, Manifest
from libs.common.testing.clock import Ahead
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import FINAL_PHASES, OPERATION
from operators.compute.samples import build_operation
from tools.kubevirt_sim.simulator import KubeVirtSim

WEB: Final = Key("default", "web")
"""Key of the Instance."""
OP: Final = Key("default", "op")
"""Key of the Operation."""


@dataclass
class Cloud:
    """Hold the API server, the simulator and the operator of a test.

    Attributes:
        api: Objects.
        sim: KubeVirt.
        compute: The operator.
        clock: Time of the operator.
        runs: UIDs of the runs of machines that there were, in their order.
    """

    api: FakeApi
    sim: KubeVirtSim
    compute: OperatorHarness
    clock: Ahead
    runs: list[str]

    async def settled(self) -> None:
        """Wait until neither the operator nor the simulator has anything to do."""
        version = -1
        while version != self.api.store.version:
            version = self.api.store.version
            await self.sim.settled()
            await self.compute.settled()

    async def operate(self, type_: str, name: str = "op", **spec: Any) -> Manifest:
        """Ask for an operation and wait for its end."""
        self.api.create(build_operation(type_, name, **spec))
        return await self.ended(name)

    async def ended(self, name: str = "op") -> Manifest:
        """Wait for the end of an operation; returns its status."""

        def probe() -> bool:
            status = self.api.get(OPERATION, ("default", name)).get("status") or {}
            return status.get("phase") in FINAL_PHASES

        await self.compute.eventually(probe, "the operation has ended", timeout=60)
        status: Manifest = self.api.get(OPERATION, ("default", name))["status"]
        return status

    async def running(self) -> VmiView:
        """Wait until the Instance runs; returns its run."""

        def probe() -> bool:
            held = self.api.find(INSTANCE, WEB)
            return held is not None and (held.get("status") or {}).get("phase") == "Running"

        await self.compute.eventually(probe, "the Instance runs", timeout=60)
        return self.run()

    def run(self) -> VmiView:
        """Return the run of the machine."""
        return VmiView.parse(self.api.get(VIRTUAL_MACHINE_INSTANCE, WEB))

    def machine(self) -> VmView:
        """Return the machine."""
        return VmView.parse(self.api.get(VIRTUAL_MACHINE, WEB))

    def deletions(self) -> int:
        """Return how many runs were ended on request."""
        kind = VIRTUAL_MACHINE_INSTANCE
        return len([each for each in self.api.requests.select("delete", kind) if each.changed])
