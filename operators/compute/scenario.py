"""A scenario for the tests: an Instance with one Operation on it, from creation to the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.direct import annotate_new
from libs.common.kinds import LEASE, Key, Manifest, key_of, uid_of
from libs.common.reading import text_at, text_map_at
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.fake_cluster import run_cluster
from operators.compute.samples import build_instance, build_size, build_snapshot
from operators.compute.simulation import Simulation

WEB: Final = Key("default", "web")
"""Key of the Instance."""
OP: Final = Key("default", "op")
"""Key of the Operation."""
NEW: Final = {"registry": "docker://example.com/new"}
"""An image that differs from the image of the Instance."""
TIMED: Final = ("SoftReboot", "Rescue", "Resize")
"""Types that need time to pass, at least after a crash."""


def _is_broken(manifest: Manifest) -> bool:
    """Return whether a disk cannot be filled, or a snapshot not be taken."""
    source = text_at(manifest, "spec", "source", "http", "url")
    return "broken" in source or "broken" in key_of(manifest).name


class Scenario:
    """An Instance with one Operation on it, and invariants that are checked at each step."""

    def __init__(self, operation: Manifest, *, dead_disks: bool = False) -> None:
        """Initialize; with dead disks, only the first disk boots."""
        self.simulation = Simulation(self.drive)
        self.operation = operation
        self.dead_disks = dead_disks
        self.runs: list[str] = []
        self.moves = 0
        self.before_action: Callable[[FakeApi], None] = lambda _: None
        self.at_action: Callable[[FakeApi], None] = lambda _: None
        annotate_new(self.simulation.api, DATA_VOLUME, "import", "fail", _is_broken)
        annotate_new(self.simulation.api, MACHINE_SNAPSHOT, "snapshot", "fail", _is_broken)

    def drive(self, api: FakeApi) -> None:
        """Perform the actions of the rest of the cluster, and check the invariants."""
        self.before_action(api)
        run_cluster(api)
        self.at_action(api)
        run = api.find(VIRTUAL_MACHINE_INSTANCE, WEB)
        if run is not None and uid_of(run) not in self.runs:
            self.runs.append(uid_of(run))
        assert len(api.objects(LEASE)) <= 1, "one Operation at a time"
        machine = api.find(VIRTUAL_MACHINE, WEB)
        if machine is not None:
            volumes = machine["spec"]["template"]["spec"]["volumes"]
            disk = volumes[0]["dataVolume"]["name"]
            held = api.find(DATA_VOLUME, Key("default", disk))
            assert held is not None, "a disk in use is gone"
            assert held["status"]["phase"] == "Succeeded", "a machine would boot from an empty disk"
        if run is not None and machine is not None:
            used = run["spec"]["volumes"][0]["dataVolume"]["name"]
            assert api.find(DATA_VOLUME, Key("default", used)) is not None, "the disk of a guest"

    async def begin(self) -> None:
        """Start an Instance, and reset the recorded writes."""
        api = self.simulation.api
        api.create(build_size())
        api.create(build_size("large", cpus=4, memory="8Gi"))
        api.create(build_instance("web"))
        if self.operation["spec"]["type"] == "Restore":
            api.create(build_snapshot("kept"))
        await self.simulation.settle()
        assert self.phase(INSTANCE) == "Running"
        if self.dead_disks:
            annotate_new(api, DATA_VOLUME, "boots", "false")
        self.simulation.writes.clear()

    async def live(self, kill_at: int | None = None, *, lose: bool = False) -> list[str]:
        """Carry out the Operation, and return its writes."""
        await self.begin()
        self.simulation.kill_at, self.simulation.lose = kill_at, lose
        self.simulation.api.create(self.operation)
        await self.simulation.settle()
        if self.operation["spec"]["type"] in TIMED:
            for _ in range(3):
                self.simulation.clock.advance(500)
                await self.simulation.settle()
        return list(self.simulation.writes)

    def phase(self, kind: Any) -> str:
        """Return the phase of the Instance, or of the Operation."""
        held = self.simulation.api.get(kind, WEB if kind == INSTANCE else OP)
        return str(held["status"]["phase"])

    def end(self) -> dict[str, Any]:
        """Return the final state."""
        api = self.simulation.api
        machine = api.get(VIRTUAL_MACHINE, WEB)
        template = machine["spec"]["template"]["spec"]
        return {
            "phase": self.phase(OPERATION),
            "reason": api.get(OPERATION, OP)["status"].get("reason"),
            "instance": self.phase(INSTANCE),
            "strategy": machine["spec"]["runStrategy"],
            "size": template["domain"]["cpu"]["sockets"],
            "directives": api.get(INSTANCE, WEB)["spec"].get("directives", []),
            "leases": len(api.objects(LEASE)),
            "runs": len(self.runs),
            "disks": len(api.objects(DATA_VOLUME)),
            "migrations": len(api.objects(VIRTUAL_MACHINE_INSTANCE_MIGRATION)),
            "node": (api.get(INSTANCE, WEB)["status"]).get("nodeName"),
            "snapshots": [key_of(each).name for each in api.objects(MACHINE_SNAPSHOT)],
            "reboots": self.reboots(),
        }

    def reboots(self) -> int:
        """Return the number of reboots that the guest of the current run performed itself."""
        run = self.simulation.api.find(VIRTUAL_MACHINE_INSTANCE, WEB) or {}
        return int(text_map_at(run, "metadata", "annotations").get(PREFIX + "reboots", "0"))
