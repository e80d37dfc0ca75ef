"""Each type of Operation over HTTP, by an operator that dies at each of its steps.

`operation/simulation_test.py` dies at each single write, in memory. Here the process is a real one
as far as the API server can tell: its requests may be on their way when it dies, and the next one
begins with empty caches.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from libs.common.kinds import LEASE, Manifest
from libs.common.reading import text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import FINAL_PHASES, OPERATION
from operators.compute.conftest import OP, WEB, Cloud
from operators.compute.samples import build_operation

IMAGE = {"url": "https://images.example.com/other.qcow2"}


@dataclass(frozen=True, slots=True)
class Case:
    """The expected result of an Operation, however often its process dies.

    Attributes:
        type: Its type.
        runs: Runs of the machine that there were in all.
        spec: Its options.
        power: Power of the machine at the end.
        same_disk: Whether the machine boots from the disk that it had before.
        made: How many of each kind there are at the end.
    """

    type: str
    runs: int
    spec: dict[str, Any] = field(default_factory=dict)
    power: str = "Running"
    same_disk: bool = True
    made: dict[str, int] = field(default_factory=dict)


CASES = (
    Case("Stop", 1, power="Stopped"),
    Case("Reboot", 2),
    Case("SoftReboot", 1, {"softReboot": {"waitSeconds": 5}}),
    Case("Rebuild", 2, {"rebuild": {"image": IMAGE}}, same_disk=False),
    Case("Resize", 2, {"resize": {"size": "large", "liveSeconds": 1}}),
    Case("Migrate", 1, made={"migrations": 1}),
    Case("Snapshot", 1, made={"snapshots": 1}),
    Case("Restore", 2, {"restore": {"snapshot": "kept"}}, same_disk=False, made={"snapshots": 1}),
    Case("Rescue", 3, {"rescue": {"image": IMAGE}}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
async def test_operation_is_done_once_by_an_operator_that_dies_at_each_step(
    cloud: Cloud, case: Case
) -> None:
    if case.type == "Restore":
        await cloud.operate("Snapshot", "kept")
    if case.type == "SoftReboot":
        # Times of conditions have whole seconds: a faster reboot of the guest could not be seen.
        await cloud.sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, boot_seconds="1.1")
    disk, mac = cloud.machine().disks["root"], cloud.mac()

    kills = await _live(cloud, case)
    await cloud.converged()

    status = cloud.api.get(OPERATION, OP)["status"]
    steps = [step["name"] for step in status["steps"]]
    # A step that takes no time is over before anybody can die in it.
    assert (status["phase"], [step for step in steps if step in kills]) == ("Succeeded", kills)
    assert len(cloud.runs) == case.runs
    assert (cloud.machine().disks["root"] == disk) is case.same_disk
    assert cloud.api.get(INSTANCE, WEB)["spec"].get("power", "Running") == case.power
    if case.power == "Running":
        await cloud.running()
        assert cloud.mac() == mac
    if case.type == "SoftReboot":
        notes = cloud.api.get(VIRTUAL_MACHINE_INSTANCE, WEB)["metadata"]["annotations"]
        assert notes["sim.slipway.dev/reboots"] == "1"
    assert _count(cloud) == {"disks": 1, "leases": 0, "directives": 0, **_NOTHING, **case.made}


_NOTHING = {"migrations": 0, "snapshots": 0}


async def _live(cloud: Cloud, case: Case) -> list[str]:
    """Carry an Operation out, with a death after each of its steps; returns those."""
    kills: list[str] = []
    begun = asyncio.Event()

    def note(change: Any) -> None:
        operation: Manifest = change.record.obj
        step = text_at(operation, "status", "step")
        if change.table[1] == OPERATION.plural and operation["metadata"]["name"] == OP.name:
            ended = text_at(operation, "status", "phase") in FINAL_PHASES
            if ended or step not in ("", *kills):
                begun.set()

    cloud.api.store.listeners.append(note)
    cloud.api.create(build_operation(case.type, **case.spec))
    while True:
        async with asyncio.timeout(60):
            await begun.wait()
        begun.clear()
        status = cloud.api.get(OPERATION, OP)["status"]
        if status["phase"] in FINAL_PHASES:
            return kills
        kills.append(status["step"])
        await cloud.compute.restart(crash=True)
        if status["step"] == "Hold":
            # This is how a user ends a rescue.
            cloud.api.patch(OPERATION, OP, {"spec": {"cancel": True}})


def _count(cloud: Cloud) -> dict[str, int]:
    return {
        "disks": len(cloud.api.objects(DATA_VOLUME)),
        "leases": len(cloud.api.objects(LEASE)),
        "directives": len(cloud.api.get(INSTANCE, WEB)["spec"].get("directives", [])),
        "migrations": len(cloud.api.objects(VIRTUAL_MACHINE_INSTANCE_MIGRATION)),
        "snapshots": len(cloud.api.objects(MACHINE_SNAPSHOT)),
    }
