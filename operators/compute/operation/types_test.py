"""What each type of Operation does, in addition to the table of crashes."""

from __future__ import annotations

from typing import Any

import pytest

from lab.kubevirt_sim.behavior import PREFIX, SILENT
from lab.kubevirt_sim.storage import CLASS_NAME
from libs.common.kinds import NODE, POD, STORAGE_CLASS, Key, Manifest, key_of
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.kstatus import compute_status
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.samples import (
    IMAGE,
    build_instance,
    build_operation,
    build_size,
    build_snapshot,
)
from operators.compute.scenario import NEW, OP, WEB, Scenario


def status_of(life: Scenario) -> dict[str, Any]:
    status: dict[str, Any] = life.simulation.api.get(OPERATION, OP)["status"]
    return status


def volumes_of(life: Scenario, kind: Any = VIRTUAL_MACHINE) -> dict[str, Any]:
    manifest = life.simulation.api.get(kind, WEB)
    spec = manifest["spec"]["template"]["spec"] if kind == VIRTUAL_MACHINE else manifest["spec"]
    return {volume["name"]: volume for volume in spec["volumes"]}


async def begin(life: Scenario, **annotations: str) -> Scenario:
    """Have an Instance whose run has some annotations, and then its Operation."""
    await life.begin()
    if annotations:
        notes = {PREFIX + name.replace("_", "-"): value for name, value in annotations.items()}
        patch = {"metadata": {"annotations": notes}}
        life.simulation.api.patch(VIRTUAL_MACHINE_INSTANCE, WEB, patch)
    life.simulation.api.create(life.operation)
    await life.simulation.settle()
    return life


def lose_class(life: Scenario) -> None:
    """Have nobody know any more whether the storage of the disks can take snapshots."""
    life.simulation.api.vanish(STORAGE_CLASS, Key("", CLASS_NAME))


async def pass_time(life: Scenario, seconds: float, times: int = 1) -> None:
    for _ in range(times):
        life.simulation.clock.advance(seconds)
        await life.simulation.settle()


# Migrate.


async def test_migration_that_no_node_can_take_quotes_the_scheduler() -> None:
    """KubeVirt says so in Events alone, and deletes the pod before it gives up."""
    life = await begin(Scenario(build_operation("Migrate")), unschedulable="true")

    scheduler = "KubeVirt cannot move it yet: no node can run it: 0/2 nodes are available"
    status = status_of(life)
    assert status["message"] == f"waiting for the guest to leave sim-node-1; {scheduler}"

    await pass_time(life, 1, times=10)
    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Failed", "MigrationFailed")
    why = "no node can run it: 0/2 nodes are available"
    assert status["message"] == f"the machine stays on sim-node-1: {why}"


async def test_migration_that_finds_a_node_after_all_succeeds() -> None:
    life = await begin(Scenario(build_operation("Migrate")), unschedulable="true")
    (pod,) = [each for each in life.simulation.api.objects(POD) if "nodeName" not in each["spec"]]
    life.simulation.api.bind(key_of(pod), "sim-node-2")
    await life.simulation.settle()

    status = status_of(life)
    assert (status["phase"], status["message"]) == (
        "Succeeded",
        "the machine moved from sim-node-1 to sim-node-2",
    )


# SoftReboot.


async def test_soft_reboot_keeps_the_run_and_is_told_by_the_agent() -> None:
    life = await begin(Scenario(build_operation("SoftReboot")))

    assert (status_of(life)["reason"], len(life.runs), life.reboots()) == ("Succeeded", 1, 1)
    assert life.simulation.writes.count("softreboot") == 1


async def test_guest_that_does_not_listen_is_asked_twice_and_left_alone() -> None:
    life = await begin(Scenario(build_operation("SoftReboot")), ignores_reboot="true")
    await pass_time(life, 130, times=3)

    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Failed", "NotRebooted")
    assert (life.simulation.writes.count("softreboot"), len(life.runs)) == (2, 1)


async def test_guest_that_does_not_listen_is_restarted_where_that_is_wanted() -> None:
    operation = build_operation("SoftReboot", softReboot={"onTimeout": "Reboot"})
    life = await begin(Scenario(operation), ignores_reboot="true")
    await pass_time(life, 130, times=3)

    assert (status_of(life)["phase"], len(life.runs)) == ("Succeeded", 2)


async def test_soft_reboot_without_an_agent_says_that_nobody_can_tell() -> None:
    life = Scenario(build_operation("SoftReboot"))
    await life.begin()
    notes = {"metadata": {"annotations": {PREFIX + "agent": "false"}}}
    life.simulation.api.patch(VIRTUAL_MACHINE_INSTANCE, WEB, notes)
    await life.simulation.settle()
    life.simulation.api.create(life.operation)
    await life.simulation.settle()

    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Succeeded", "Unverified")


async def test_guest_is_not_asked_before_that_is_written_down() -> None:
    """A process that asks and dies would have the next one ask again."""
    life = await begin(Scenario(build_operation("SoftReboot")), ignores_reboot="true")
    life.simulation.writes.clear()
    life.simulation.writable = False
    await pass_time(life, 130)
    assert "softreboot" not in life.simulation.writes

    life.simulation.writable = True
    await pass_time(life, 1)
    assert life.simulation.writes.count("softreboot") == 1


# Snapshot and Restore.


async def test_snapshot_is_named_and_outlives_its_operation() -> None:
    life = await begin(Scenario(build_operation("Snapshot", snapshot={"name": "before"})))
    life.simulation.api.delete(OPERATION, OP)
    await life.simulation.settle()

    snapshot = life.simulation.api.get(MACHINE_SNAPSHOT, Key("default", "before"))
    assert snapshot["spec"]["source"]["name"] == "web"
    assert "ownerReferences" not in snapshot["metadata"]


async def test_snapshot_that_cannot_be_taken_says_why() -> None:
    life = await begin(Scenario(build_operation("Snapshot", snapshot={"name": "broken"})))

    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Failed", "SnapshotFailed")
    assert "injected by the simulator" in status["message"]
    assert compute_status(life.simulation.api.get(OPERATION, OP)) == "Failed", "waits end"


async def test_snapshot_without_the_disk_is_a_failure_though_kubevirt_calls_it_ready() -> None:
    life = Scenario(build_operation("Snapshot", snapshot={"name": "partial"}))
    api = life.simulation.api

    def leave_disk_out(_: FakeApi) -> None:
        if api.objects(MACHINE_SNAPSHOT) and api.find(STORAGE_CLASS, Key("", CLASS_NAME)):
            lose_class(life)

    life.before_action = leave_disk_out
    await begin(life)

    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Failed", "SnapshotIncomplete")
    assert "KubeVirt left out disk root" in status["message"]


async def test_snapshot_that_kubevirt_cannot_take_is_not_asked_for() -> None:
    life = Scenario(build_operation("Snapshot", snapshot={"name": "before"}))
    await life.begin()
    lose_class(life)
    await life.simulation.settle()
    life.simulation.api.create(life.operation)
    await life.simulation.settle()

    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Failed", "SnapshotUnsupported")
    why = "KubeVirt cannot take a snapshot of disk root: No VolumeSnapshotClass"
    assert status["message"].startswith(why)
    assert life.simulation.api.objects(MACHINE_SNAPSHOT) == []


async def test_snapshot_of_somebody_else_is_left_alone() -> None:
    life = Scenario(build_operation("Snapshot", snapshot={"name": "theirs"}))
    await life.begin()
    theirs = life.simulation.api.create(build_snapshot("theirs"))
    life.simulation.api.create(life.operation)
    await life.simulation.settle()

    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Failed", "NameTaken")
    held = life.simulation.api.get(MACHINE_SNAPSHOT, Key("default", "theirs"))
    assert held["metadata"]["uid"] == theirs["metadata"]["uid"]


async def test_restore_boots_from_a_disk_that_is_made_of_the_snapshot() -> None:
    life = await begin(Scenario(build_operation("Restore", restore={"snapshot": "kept"})))

    assert status_of(life)["phase"] == "Succeeded"
    (disk,) = life.simulation.api.objects(DATA_VOLUME)
    assert disk["spec"]["source"]["snapshot"]["name"].endswith("-volume-root")
    assert volumes_of(life)["root"]["dataVolume"]["name"] == key_of(disk).name


async def test_restore_of_a_snapshot_that_is_not_there_does_not_touch_the_machine() -> None:
    life = await begin(Scenario(build_operation("Restore", restore={"snapshot": "nothing"})))

    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Failed", "SnapshotNotFound")
    assert "nothing" in status["message"]
    assert (len(life.runs), life.phase(INSTANCE)) == (1, "Running")


# Rescue.


def build_rescue() -> Manifest:
    return build_operation("Rescue", rescue={"image": NEW, "durationSeconds": 600})


async def test_rescue_has_the_own_disk_beside_another_and_goes_back_by_itself() -> None:
    life = await begin(Scenario(build_rescue()))

    assert (status_of(life)["step"], life.phase(INSTANCE)) == ("Hold", "Rescue")
    during = volumes_of(life, VIRTUAL_MACHINE_INSTANCE)
    assert during["root"]["dataVolume"]["name"] != "web-root"
    assert during["rescued"]["persistentVolumeClaim"]["claimName"] == "web-root"

    await pass_time(life, 601)
    assert (status_of(life)["phase"], life.phase(INSTANCE)) == ("Succeeded", "Running")
    after = volumes_of(life, VIRTUAL_MACHINE_INSTANCE)
    assert after["root"]["dataVolume"]["name"] == "web-root"
    assert "rescued" not in after
    assert [key_of(disk).name for disk in life.simulation.api.objects(DATA_VOLUME)] == ["web-root"]


async def test_rescue_of_a_machine_that_is_off_says_how_to_boot_it() -> None:
    life = Scenario(build_rescue())
    await life.begin()
    life.simulation.api.patch(INSTANCE, WEB, {"spec": {"power": "Stopped"}})
    await life.simulation.settle()
    life.simulation.api.create(life.operation)
    await life.simulation.settle()
    assert status_of(life)["step"] == "Hold"
    assert "set spec.power to Running" in status_of(life)["message"]

    life.simulation.api.patch(INSTANCE, WEB, {"spec": {"power": "Running"}})
    await life.simulation.settle()
    assert "the machine runs from" in status_of(life)["message"]

    await pass_time(life, 601)
    assert (status_of(life)["phase"], life.phase(INSTANCE)) == ("Succeeded", "Running")
    assert volumes_of(life)["root"]["dataVolume"]["name"] == "web-root"


async def test_rescue_ends_well_as_soon_as_somebody_says_so() -> None:
    life = await begin(Scenario(build_rescue()))
    life.simulation.api.patch(OPERATION, OP, {"spec": {"cancel": True}})
    await life.simulation.settle()

    assert status_of(life)["phase"] == "Succeeded"
    assert volumes_of(life)["root"]["dataVolume"]["name"] == "web-root"


async def test_rescue_that_cannot_go_back_in_time_goes_back_later_and_loses_no_disk() -> None:
    life = await begin(Scenario(build_rescue()))
    node = life.simulation.api.get(VIRTUAL_MACHINE_INSTANCE, WEB)["status"]["nodeName"]
    silent = {"metadata": {"annotations": {SILENT: "true"}}}
    life.simulation.api.patch(NODE, Key("", node), silent)
    await pass_time(life, 4000, times=2)
    status = status_of(life)
    assert status["phase"] == "RollingBack"
    assert status["message"].startswith("3600 s were not enough for Return; node ")
    assert status["message"].count("does not report") == 1, "the message does not grow"

    await pass_time(life, 4000)
    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Failed", "RollbackFailed")

    life.simulation.api.patch(NODE, Key("", node), {"metadata": {"annotations": {SILENT: None}}})
    await life.simulation.settle()

    assert volumes_of(life, VIRTUAL_MACHINE_INSTANCE)["root"]["dataVolume"]["name"] == "web-root"
    assert Key("default", "web-root") in map(key_of, life.simulation.api.objects(DATA_VOLUME))


async def test_disk_that_is_repaired_stays_when_somebody_removes_the_directive() -> None:
    life = await begin(Scenario(build_rescue()))
    life.simulation.api.patch(INSTANCE, WEB, {"spec": {"directives": None}})
    await life.simulation.settle()
    assert Key("default", "web-root") in map(key_of, life.simulation.api.objects(DATA_VOLUME))

    await pass_time(life, 601)
    assert (status_of(life)["phase"], life.phase(INSTANCE)) == ("Succeeded", "Running")
    assert volumes_of(life, VIRTUAL_MACHINE_INSTANCE)["root"]["dataVolume"]["name"] == "web-root"


# An Instance that has never run.


async def test_rebuild_mends_an_instance_whose_first_image_cannot_be_had() -> None:
    life = Scenario(build_operation("Rebuild"))
    api = life.simulation.api
    api.create(build_size())
    api.create(build_instance("web", image={"url": "https://example.com/broken.qcow2"}))
    await life.simulation.settle()
    assert life.phase(INSTANCE) == "Failed"

    api.patch(INSTANCE, WEB, {"spec": {"image": IMAGE}})
    api.create(life.operation)
    await life.simulation.settle()

    assert (status_of(life)["phase"], life.phase(INSTANCE)) == ("Succeeded", "Running")
    (disk,) = api.objects(DATA_VOLUME)
    assert disk["spec"]["source"] == {"http": IMAGE}


# A disk that does not boot.


@pytest.mark.parametrize("type_", ["Rebuild", "Restore"])
async def test_disk_of_an_agentless_guest_that_is_replaced_is_kept(type_: str) -> None:
    """The machine runs, which is all that can be seen: the guest may not boot."""
    spec: dict[str, Any] = {"restore": {"snapshot": "kept"}} if type_ == "Restore" else {}
    life = Scenario(build_operation(type_, **spec), dead_disks=True)
    await life.begin()
    life.simulation.api.patch(INSTANCE, WEB, {"spec": {"bootCheck": "Running"}})
    life.simulation.api.create(life.operation)
    await life.simulation.settle()

    status = status_of(life)
    assert (status["phase"], status["reason"]) == ("Succeeded", "Unverified")
    assert "disk web-root is kept" in status["message"]
    shown = life.simulation.api.get(INSTANCE, WEB)["status"]
    assert [disk["name"] for disk in shown["keptDisks"]] == ["web-root"]

    await pass_time(life, 86_399)
    assert len(life.simulation.api.objects(DATA_VOLUME)) == 2
    await pass_time(life, 1)
    (disk,) = life.simulation.api.objects(DATA_VOLUME)
    assert key_of(disk).name == shown["rootDisk"]["name"] != "web-root"


async def test_user_goes_back_to_a_kept_disk_by_a_directive() -> None:
    life = Scenario(build_operation("Rebuild"), dead_disks=True)
    await life.begin()
    life.simulation.api.patch(INSTANCE, WEB, {"spec": {"bootCheck": "Running"}})
    life.simulation.api.create(life.operation)
    await life.simulation.settle()

    back = {"kind": "RootDisk", "token": "back", "disk": "web-root", "use": "Boot"}
    life.simulation.api.patch(INSTANCE, WEB, {"spec": {"directives": [back]}})
    await life.simulation.settle()
    life.simulation.api.patch(INSTANCE, WEB, {"spec": {"directives": None}})
    await life.simulation.settle()

    assert life.phase(INSTANCE) == "Running"
    (disk,) = life.simulation.api.objects(DATA_VOLUME)
    assert key_of(disk).name == "web-root", "its agent answers, so the other one is deleted"
