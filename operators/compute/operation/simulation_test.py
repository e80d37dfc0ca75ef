"""The table of crashes, tried: an Operation whose process dies at each of its writes.

Each life is run once undisturbed, and then once for each write and each way to die at it: before
the write arrives, or after it did and before anybody knew. Whatever the type, the end is the same,
and what must happen once has happened once.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from lab.kubevirt_sim.direct import annotate_new
from libs.common.kinds import LEASE, Key, Kind, Manifest, key_of, uid_of
from libs.common.runtime import Context
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION, Operation
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.operation.observe import observe_operation
from operators.compute.samples import build_instance, build_operation, build_size
from operators.compute.scenario import NEW, OP, WEB, Scenario
from operators.compute.simulation import SimulatedContext, Simulation

BROKEN = {"url": "https://example.com/broken.qcow2"}
STRIDES = {"Restore": 3, "Rescue": 2}
"""Which writes are tried, for types that share their steps with a Rebuild."""

TYPES: list[tuple[str, dict[str, Any]]] = [
    ("Reboot", {}),
    ("Stop", {}),
    ("Rebuild", {"rebuild": {"image": NEW}}),
    ("Resize", {"resize": {"size": "large"}}),
    ("Migrate", {}),
    ("SoftReboot", {}),
    ("Snapshot", {"snapshot": {"name": "before"}}),
    ("Restore", {"restore": {"snapshot": "kept"}}),
    ("Rescue", {"rescue": {"image": NEW, "durationSeconds": 600}}),
]


@pytest.mark.parametrize(("type_", "spec"), TYPES)
async def test_operation_ends_the_same_whatever_write_its_process_dies_at(
    type_: str, spec: dict[str, Any]
) -> None:
    calm = Scenario(build_operation(type_, **spec))
    writes = await calm.live()
    expected = calm.end()
    assert expected["phase"] == "Succeeded"
    assert expected["leases"] == 0
    assert expected["directives"] == []

    for index in range(0, len(writes), STRIDES.get(type_, 1)):
        # Both crash modes for the write that must never happen twice; in turns for the others.
        for lose in (False, True) if type_ in ("Reboot", "SoftReboot") else (index % 2 == 0,):
            life = Scenario(build_operation(type_, **spec))
            await life.live(index, lose=lose)
            assert life.end() == expected, f"died at {index}: {writes[index]}, arrived: {lose}"


async def test_reboot_is_one_new_run_and_nothing_else_changes() -> None:
    life = Scenario(build_operation("Reboot"))
    await life.live()

    assert life.end() | {"phase": ""} == {
        "phase": "",
        "reason": "Succeeded",
        "instance": "Running",
        "strategy": "Once",
        "size": 2,
        "directives": [],
        "leases": 0,
        "runs": 2,
        "disks": 1,
        "migrations": 0,
        "node": "sim-node-1",
        "snapshots": [],
        "reboots": 0,
    }
    steps = life.simulation.api.get(OPERATION, OP)["status"]["steps"]
    assert [step["name"] for step in steps] == ["Baseline", "Restart", "WaitRunning", "Finish"]
    assert all(step["state"] == "Done" for step in steps)


async def test_rebuild_changes_the_disk_and_keeps_the_identity() -> None:
    life = Scenario(build_operation("Rebuild", rebuild={"image": NEW}))
    await life.begin()
    before = life.simulation.api.get(INSTANCE, WEB)["status"]
    life.simulation.api.create(life.operation)
    await life.simulation.settle()

    after = life.simulation.api.get(INSTANCE, WEB)["status"]
    (disk,) = life.simulation.api.objects(DATA_VOLUME)
    assert after["rootDisk"]["name"] == key_of(disk).name != before["rootDisk"]["name"]
    assert disk["spec"]["source"] == {"registry": {"url": NEW["registry"]}}
    for field in ("macAddress", "firmwareUUID", "vmUID"):
        assert after[field] == before[field]


@pytest.mark.parametrize("type_", ["Rebuild", "Restore", "Rescue"])
@pytest.mark.parametrize("change", ["running", "stopped"])
async def test_machine_whose_template_changed_gets_its_disk(type_: str, change: str) -> None:
    """The generation that KubeVirt reports stays behind the generation of such a machine."""
    life = Scenario(build_operation(type_, **dict(TYPES)[type_]))
    await life.begin()
    api = life.simulation.api
    if change == "running":
        api.patch(INSTANCE, WEB, {"spec": {"evictionStrategy": "None"}})
    else:
        api.patch(INSTANCE, WEB, {"spec": {"power": "Stopped"}})
        await life.simulation.settle()
        api.patch(INSTANCE, WEB, {"spec": {"size": "large"}})
    await life.simulation.settle()
    machine = api.get(VIRTUAL_MACHINE, WEB)
    assert machine["status"]["observedGeneration"] < machine["metadata"]["generation"]

    api.create(life.operation)
    await life.simulation.settle()
    life.simulation.clock.advance(700)
    await life.simulation.settle()

    assert life.phase(OPERATION) == "Succeeded"
    assert api.get(VIRTUAL_MACHINE, WEB)["spec"]["runStrategy"] == (
        "Once" if change == "running" else "Halted"
    )


async def test_rebuild_of_an_image_that_cannot_be_had_does_not_touch_the_machine() -> None:
    calm = Scenario(build_operation("Rebuild", rebuild={"image": BROKEN}))
    writes = await calm.live()
    expected = calm.end()
    assert (expected["phase"], expected["reason"]) == ("Failed", "DiskFailed")
    assert (expected["runs"], expected["disks"], expected["instance"]) == (1, 1, "Running")

    for index in range(len(writes)):
        life = Scenario(build_operation("Rebuild", rebuild={"image": BROKEN}))
        await life.live(index, lose=index % 2 == 0)
        assert life.end() == expected, f"died at {index}: {writes[index]}"


async def roll_back(life: Scenario, kill_at: int | None = None) -> list[str]:
    """Rebuild onto a disk that does not boot, and let the time run out."""
    await life.live(kill_at)
    for _ in range(3):
        life.simulation.clock.advance(1000)
        await life.simulation.settle()
    return list(life.simulation.writes)


async def test_rebuild_that_does_not_boot_goes_back_to_the_old_disk() -> None:
    calm = Scenario(build_operation("Rebuild", rebuild={"image": NEW}), dead_disks=True)
    writes = await roll_back(calm)
    expected = calm.end()
    assert (expected["phase"], expected["reason"]) == ("Failed", "RolledBack")
    assert (expected["instance"], expected["disks"]) == ("Running", 1)
    assert calm.simulation.api.get(INSTANCE, WEB)["status"]["rootDisk"]["name"] == "web-root"

    for index in range(len(writes)):
        life = Scenario(build_operation("Rebuild", rebuild={"image": NEW}), dead_disks=True)
        await roll_back(life, index)
        got = life.end()
        assert got == expected, f"died at {index}: {writes[index]}"


@pytest.mark.parametrize(("type_", "spec"), TYPES)
async def test_operation_that_is_cancelled_at_any_point_leaves_nothing_behind(
    type_: str, spec: dict[str, Any]
) -> None:
    count = len(await Scenario(build_operation(type_, **spec)).live())
    for index in range(0, count, 3):
        life = Scenario(build_operation(type_, **spec))

        def cancel(api: FakeApi, life: Scenario = life, index: int = index) -> None:
            if len(life.simulation.writes) >= index and api.find(OPERATION, OP) is not None:
                api.patch(OPERATION, OP, {"spec": {"cancel": True}})

        life.at_action = cancel
        await life.live()
        end = life.end()
        assert end["phase"] in ("Cancelled", "Succeeded"), end
        assert (end["leases"], end["directives"], end["disks"]) == (0, [], 1)
        if end["phase"] == "Cancelled" and type_ != "Stop":
            assert end["instance"] == "Running"
            assert end["size"] == 2


async def test_operations_on_one_instance_take_turns_in_their_order() -> None:
    life = Scenario(build_operation("Reboot"))
    await life.begin()
    api = life.simulation.api
    names = ["c", "a", "b"]
    for number, name in enumerate(names):
        operation = build_operation("Reboot", name)
        operation["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
        api.create(operation)
        api.patch(OPERATION, Key("default", name), {"metadata": {}})
    await life.simulation.settle()

    ends = [api.get(OPERATION, Key("default", name))["status"] for name in names]
    assert [end["phase"] for end in ends] == ["Succeeded"] * 3
    assert len(life.runs) == 4, "each Operation is a run of its own"


async def test_operation_that_does_not_want_to_wait_fails_while_another_is_at_work() -> None:
    life = Scenario(build_operation("Rebuild", rebuild={"image": NEW}), dead_disks=True)
    await life.live()
    assert life.phase(OPERATION) == "Running"
    life.simulation.api.create(build_operation("Reboot", "hasty", queue="FailIfBusy"))
    life.simulation.api.create(build_operation("Reboot", "patient"))
    await life.simulation.settle()

    hasty = life.simulation.api.get(OPERATION, Key("default", "hasty"))["status"]
    patient = life.simulation.api.get(OPERATION, Key("default", "patient"))["status"]
    assert (hasty["phase"], hasty["reason"]) == ("Failed", "Busy")
    assert (patient["phase"], patient["queuePosition"]) == ("Pending", 1)


async def test_lease_of_an_operation_that_is_gone_is_taken_over() -> None:
    life = Scenario(build_operation("Rebuild", rebuild={"image": NEW}), dead_disks=True)
    await life.live()
    api = life.simulation.api
    api.vanish(OPERATION, OP)
    assert len(api.objects(LEASE)) == 1
    api.create(build_operation("Reboot", "op"))
    await life.simulation.settle()

    assert api.get(OPERATION, OP)["status"]["leaseName"]
    (lease,) = api.objects(LEASE) or [{}]
    holder = (lease.get("spec") or {}).get("holderIdentity")
    assert holder in (None, uid_of(api.get(OPERATION, OP)))


async def test_deletion_of_a_running_operation_undoes_what_it_did() -> None:
    life = Scenario(build_operation("Rebuild", rebuild={"image": NEW}), dead_disks=True)
    await life.live()
    life.simulation.api.patch(OPERATION, OP, {"metadata": {"finalizers": ["test/finalizer"]}})
    life.simulation.api.delete(OPERATION, OP)
    await life.simulation.settle()

    assert life.simulation.api.find(OPERATION, OP) is None
    assert life.simulation.api.get(INSTANCE, WEB)["status"]["rootDisk"]["name"] == "web-root"
    assert life.phase(INSTANCE) == "Running"
    assert life.simulation.api.objects(LEASE) == []


async def test_operation_on_an_instance_that_is_not_there_fails() -> None:
    life = Scenario(build_operation("Reboot", "op", "nobody"))
    await life.live()

    status = life.simulation.api.get(OPERATION, OP)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "TargetNotFound")


async def test_operation_names_both_uids_of_an_instance_that_is_not_the_one_it_was_made_for() -> (
    None
):
    """The cause may be a wrong UID in the spec as well, so the message claims neither."""
    operation = build_operation("Reboot")
    operation["spec"]["targetRef"]["uid"] = "0000-wrong"
    life = Scenario(operation)
    await life.live()

    uid = life.simulation.api.get(INSTANCE, WEB)["metadata"]["uid"]
    status = life.simulation.api.get(OPERATION, OP)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "TargetNotFound")
    assert f"has UID {uid} instead of 0000-wrong" in status["message"]


async def test_reboot_of_a_machine_that_is_off_fails() -> None:
    life = Scenario(build_operation("Reboot"))
    await life.begin()
    life.simulation.api.patch(INSTANCE, WEB, {"spec": {"power": "Stopped"}})
    await life.simulation.settle()
    life.simulation.api.create(life.operation)
    await life.simulation.settle()

    assert life.simulation.api.get(OPERATION, OP)["status"]["reason"] == "NotRunning"
    assert life.phase(INSTANCE) == "Stopped"


@pytest.mark.parametrize("unseen", [INSTANCE, INSTANCE_SIZE], ids=lambda kind: kind.kind)
async def test_operation_does_not_fail_for_what_the_cache_does_not_show_yet(unseen: Kind) -> None:
    life = Scenario(build_operation("Resize", resize={"size": "large"}))
    await life.begin()
    life.simulation.unseen = unseen
    life.simulation.api.create(life.operation)
    await life.simulation.settle()
    assert "outcome" not in (life.simulation.api.get(OPERATION, OP).get("status") or {})

    life.simulation.unseen = None
    await life.simulation.settle()
    life.simulation.clock.advance(500)
    await life.simulation.settle()
    assert life.phase(OPERATION) == "Succeeded"


async def test_lease_of_an_operation_that_has_ended_is_taken_over() -> None:
    """A create whose answer was lost may arrive when nobody waits for it any more."""
    life = Scenario(build_operation("Reboot"))
    await life.begin()
    api, ended = life.simulation.api, life.operation
    made: list[Manifest] = []

    def keep(api: FakeApi) -> None:
        made.extend(api.objects(LEASE)[: 1 - len(made)])

    life.at_action = keep
    api.create(ended)
    await life.simulation.settle()
    assert life.phase(OPERATION) == "Succeeded"
    kept = ("name", "namespace", "labels", "ownerReferences")
    api.create({**made[0], "metadata": {name: made[0]["metadata"][name] for name in kept}})
    api.create(build_operation("Reboot", "next"))
    await life.simulation.settle()

    assert api.get(OPERATION, Key("default", "next"))["status"]["phase"] == "Succeeded"


async def test_lease_of_an_operation_in_progress_is_not_taken_for_ownerless() -> None:
    """Others on the same Instance may have ended already."""
    life = Scenario(build_operation("Reboot", "done"))
    await life.begin()
    api = life.simulation.api
    api.create(life.operation)
    await life.simulation.settle()
    annotate_new(api, DATA_VOLUME, "boots", "false")
    api.create(build_operation("Rebuild", "op"))
    await life.simulation.settle()
    assert life.phase(OPERATION) == "Running"
    waiting = api.create(build_operation("Reboot", "next"))

    ctx = SimulatedContext(life.simulation, OPERATION, waiting)
    observed = observe_operation(cast(Context, ctx), Operation.parse(waiting))

    assert observed.lock is not None
    assert (observed.lock.holder, observed.lock.alive) == (uid_of(api.get(OPERATION, OP)), True)


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"firewallRef": {"name": "web"}}, "Firewall web does not exist"),
        ({"networkRef": {"name": "lan"}}, "Network lan does not exist"),
        ({"volumes": [{"name": "data", "claim": "data"}]}, "PersistentVolumeClaim data"),
        ({"size": "huge"}, "InstanceSize huge does not exist"),
    ],
)
async def test_operation_names_what_the_machine_waits_for(spec: dict[str, Any], cause: str) -> None:
    simulation = Simulation()
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web", power="Stopped", **spec))
    await simulation.settle()
    simulation.api.create(build_operation("Start"))
    await simulation.settle()
    assert cause in simulation.api.get(OPERATION, OP)["status"]["message"]

    simulation.clock.advance(3600)
    await simulation.settle()
    status = simulation.api.get(OPERATION, OP)["status"]
    assert status["reason"] == "DeadlineExceeded"
    assert cause in status["message"]
