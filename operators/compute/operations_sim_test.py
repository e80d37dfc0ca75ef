"""Operations on the simulator of KubeVirt, as a user asks for them.

The simulator follows KubeVirt's controllers step by step, so what is between two states is seen
too: `Stopped` flashes, two launcher pods, disks that fill, nodes that are silent.
"""

from __future__ import annotations

from functools import partial

from libs.common.client import ANY_ANSWER
from libs.common.conditions import find_condition
from libs.common.kinds import EVENT, LEASE, STORAGE_CLASS, Key, Manifest, build_object
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    VmiView,
)
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.conftest import OP, WEB, Cloud
from operators.compute.samples import build_instance, build_operation, build_size


async def test_reboot_ends_the_run_once_and_the_machine_runs_again(cloud: Cloud) -> None:
    before, mac = cloud.run(), cloud.mac()

    status = await cloud.operate("Reboot")

    after = cloud.run()
    assert status["phase"] == "Succeeded"
    assert after.ready and cloud.runs == [before.uid, after.uid]
    assert cloud.mac() == mac
    assert cloud.api.objects(LEASE) == []


async def test_reboot_whose_answer_is_lost_happens_once(cloud: Cloud) -> None:
    """A retried `restart` would reboot twice; a delete of one UID cannot."""
    cloud.api.fail("delete", VIRTUAL_MACHINE_INSTANCE, lost_response=True)

    status = await cloud.operate("Reboot")

    assert status["phase"] == "Succeeded"
    assert len(cloud.runs) == 2


async def test_stop_and_start_go_by_the_power_of_the_instance(cloud: Cloud) -> None:
    assert (await cloud.operate("Stop", "off"))["phase"] == "Succeeded"
    assert cloud.machine().run_strategy == "Halted"
    assert cloud.api.find(VIRTUAL_MACHINE_INSTANCE, WEB) is None

    assert (await cloud.operate("Start", "on"))["phase"] == "Succeeded"
    assert (await cloud.running()).ready


async def test_rebuild_boots_from_another_disk_and_keeps_the_identity(cloud: Cloud) -> None:
    """Upstream: kubevirt/kubevirt#12544, #18424, #11637 and #16696.

    A disk made again under its name sticks, one of a template comes back by itself, and a MAC
    address that KubeVirt draws changes.
    """
    before, machine, mac = cloud.run(), cloud.machine(), cloud.mac()
    old = machine.disks["root"]
    image = {"url": "https://images.example.com/other.qcow2"}

    status = await cloud.operate("Rebuild", rebuild={"image": image})

    after, rebuilt = await cloud.running(), cloud.machine()
    assert status["phase"] == "Succeeded", status
    assert rebuilt.uid == machine.uid and after.uid != before.uid
    assert rebuilt.disks["root"] != old
    assert "dataVolumeTemplates" not in cloud.api.get(VIRTUAL_MACHINE, WEB)["spec"]
    assert cloud.mac() == mac
    disk = cloud.api.get(DATA_VOLUME, ("default", rebuilt.disks["root"]))
    assert disk["spec"]["source"]["http"]["url"] == image["url"]


async def test_rebuild_whose_image_cannot_be_had_does_not_touch_the_machine(
    cloud: Cloud,
) -> None:
    before = cloud.run()
    cloud.annotate_new(DATA_VOLUME, "import", "fail")

    status = await cloud.operate("Rebuild", rebuild={"image": {"url": "https://e.example/x"}})

    assert (status["phase"], status["reason"]) == ("Failed", "DiskFailed")
    assert cloud.runs == [before.uid] and cloud.run().ready


async def test_rebuild_that_never_gets_ready_goes_back_to_the_old_disk(cloud: Cloud) -> None:
    old = cloud.machine().disks["root"]

    def has_new_disk(vmi: Manifest) -> bool:
        return bool(vmi["spec"]["volumes"][0]["dataVolume"]["name"] != old)

    cloud.annotate_new(VIRTUAL_MACHINE_INSTANCE, "image", "ErrImagePull", has_new_disk)

    cloud.api.create(build_operation("Rebuild", rebuild={"readySeconds": 10}))
    await cloud.compute.eventually(lambda: _phase_of(cloud) == "Scheduling", "the start is stuck")
    await cloud.converged()
    cloud.clock.seconds = 20
    cloud.api.patch(OPERATION, OP, {"metadata": {"annotations": {"look": "again"}}})
    status = await cloud.ended()

    assert (status["phase"], status["reason"]) == ("Failed", "RolledBack"), status
    assert cloud.machine().disks["root"] == old
    assert (await cloud.running()).ready


async def test_migration_moves_the_run_and_does_not_restart_it(cloud: Cloud) -> None:
    before = cloud.run()

    status = await cloud.operate("Migrate")

    after = cloud.run()
    assert status["phase"] == "Succeeded", status
    assert after.uid == before.uid and after.node_name != before.node_name


async def test_failed_migration_says_why_and_leaves_the_run(cloud: Cloud) -> None:
    before = cloud.run()
    await cloud.sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, migration="fail")

    status = await cloud.operate("Migrate")

    assert (status["phase"], status["reason"]) == ("Failed", "MigrationFailed")
    assert "injected" in status["message"]
    assert (cloud.run().uid, cloud.run().node_name) == (before.uid, before.node_name)


async def test_cancelled_migration_is_given_up(cloud: Cloud) -> None:
    before = cloud.run()
    await cloud.sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, migration="stall")
    cloud.api.create(build_operation("Migrate"))
    await cloud.compute.eventually(lambda: cloud.run().migrating, "the guest is being copied")

    cloud.api.patch(OPERATION, OP, {"spec": {"cancel": True}})
    status = await cloud.ended()

    assert status["phase"] == "Cancelled"
    assert (cloud.run().uid, cloud.run().node_name) == (before.uid, before.node_name)
    assert not cloud.run().migrating
    left = partial(cloud.api.objects, VIRTUAL_MACHINE_INSTANCE_MIGRATION)
    await cloud.compute.eventually(lambda: left() == [], "KubeVirt lets the migration go")


async def test_migration_of_somebody_else_is_waited_for(cloud: Cloud) -> None:
    """KubeVirt refuses a second one: `in-flight migration detected`."""
    await cloud.sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, migration="stall")
    other = build_object(
        VIRTUAL_MACHINE_INSTANCE_MIGRATION, "theirs", "default", spec={"vmiName": "web"}
    )
    cloud.api.create(other)
    cloud.api.create(build_operation("Migrate"))
    await cloud.compute.eventually(lambda: cloud.run().migrating, "the guest is being copied")

    await cloud.sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, migration=None)
    status = await cloud.ended()

    assert status["phase"] == "Succeeded", status


async def test_resize_that_needs_a_restart_restarts_once(cloud: Cloud) -> None:
    status = await cloud.operate("Resize", resize={"size": "large", "liveSeconds": 1})

    assert status["phase"] == "Succeeded", status
    vmi = cloud.api.get(VIRTUAL_MACHINE_INSTANCE, WEB)
    assert vmi["spec"]["domain"]["memory"]["guest"] == "8Gi"
    assert len(cloud.runs) == 2


async def test_resize_says_that_the_disk_stays_as_it_is(cloud: Cloud) -> None:
    size = build_size("huge", cpus=4, memory="8Gi")
    cloud.api.create({**size, "spec": {**size["spec"], "disk": "80Gi"}})

    status = await cloud.operate("Resize", resize={"size": "huge", "liveSeconds": 1})

    assert status["phase"] == "Succeeded", status
    assert "its root disk has 10Gi, and its size asks for 80Gi" in status["message"]


async def test_soft_reboot_keeps_the_run_and_waits_for_the_agent(cloud: Cloud) -> None:
    before = cloud.run()
    # Times of conditions have whole seconds: a faster reboot of the guest could not be seen.
    await cloud.sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, boot_seconds="1.1")

    status = await cloud.operate("SoftReboot")

    assert (status["phase"], cloud.runs) == ("Succeeded", [before.uid]), status
    notes = cloud.api.get(VIRTUAL_MACHINE_INSTANCE, WEB)["metadata"]["annotations"]
    assert notes["sim.slipway.dev/reboots"] == "1"


async def test_soft_reboot_that_kubevirt_refuses_says_why(cloud: Cloud) -> None:
    path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/web/pause"
    await cloud.sim.client.raw("PUT", path, {}, accept=ANY_ANSWER)

    status = await cloud.operate("SoftReboot")

    assert (status["phase"], status["reason"]) == ("Failed", "NotRebooted")
    assert "VMI is paused" in status["message"]


async def test_snapshot_is_restored_as_another_disk(cloud: Cloud) -> None:
    taken = await cloud.operate("Snapshot", "before")
    restored = await cloud.operate("Restore", "back", restore={"snapshot": "before"})

    assert (taken["phase"], restored["phase"]) == ("Succeeded", "Succeeded"), restored
    assert "while the guest file systems were frozen" in taken["message"]
    disk = cloud.api.get(DATA_VOLUME, ("default", cloud.machine().disks["root"]))
    assert disk["spec"]["source"]["snapshot"]["name"].endswith("-volume-root")


async def test_rescue_boots_from_another_disk_until_it_is_ended(cloud: Cloud) -> None:
    own = cloud.machine().disks["root"]
    image = {"url": "https://images.example.com/rescue.qcow2"}
    cloud.api.create(build_operation("Rescue", rescue={"image": image}))

    def is_held() -> bool:
        return (cloud.api.get(OPERATION, OP).get("status") or {}).get("step") == "Hold"

    await cloud.compute.eventually(is_held, "the machine runs from the rescue disk")
    assert cloud.machine().disks["root"] != own
    cloud.api.patch(OPERATION, OP, {"spec": {"cancel": True}})
    status = await cloud.ended()

    assert status["phase"] == "Succeeded", status
    assert cloud.machine().disks["root"] == own
    assert (await cloud.running()).ready


async def test_rescue_uses_the_node_to_which_the_own_disk_belongs(cloud: Cloud) -> None:
    local = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    cloud.api.create(
        build_object(
            STORAGE_CLASS,
            "local",
            provisioner="rancher.io/local-path",
            volumeBindingMode="WaitForFirstConsumer",
        )
    )
    cloud.api.create(build_instance("near", rootDisk=local))
    near = Key("default", "near")

    def runs() -> bool:
        return (cloud.api.get(INSTANCE, near).get("status") or {}).get("phase") == "Running"

    await cloud.compute.eventually(runs, "the Instance runs")
    node = VmiView.parse(cloud.api.get(VIRTUAL_MACHINE_INSTANCE, near)).node_name
    image = {"url": "https://images.example.com/rescue.qcow2"}
    cloud.api.create(build_operation("Rescue", target="near", rescue={"image": image}))

    def is_held() -> bool:
        return (cloud.api.get(OPERATION, OP).get("status") or {}).get("step") == "Hold"

    await cloud.compute.eventually(is_held, "the machine runs from the rescue disk")
    run = VmiView.parse(cloud.api.get(VIRTUAL_MACHINE_INSTANCE, near))
    assert run.ready and run.node_name == node


async def test_operations_on_one_instance_go_one_after_the_other(cloud: Cloud) -> None:
    for name in ("a", "b", "c"):
        cloud.api.create(build_operation("Reboot", name))

    ends = [await cloud.ended(name) for name in ("a", "b", "c")]

    assert [each["phase"] for each in ends] == ["Succeeded"] * 3
    assert len(cloud.runs) == 4


async def test_reboot_waits_for_a_node_that_is_silent(cloud: Cloud) -> None:
    """The guest may still run there: https://github.com/kubevirt/kubevirt/issues/3332."""
    before = cloud.run()
    await cloud.sim.silence(before.node_name)
    cloud.api.create(build_operation("Reboot"))
    await cloud.compute.eventually(lambda: cloud.deletions() > 0, "the run is to end")
    await cloud.converged()

    assert cloud.run().uid == before.uid
    assert cloud.api.get(OPERATION, OP)["status"]["phase"] == "Running"
    blocked = find_condition(cloud.api.get(INSTANCE, WEB), "Blocked")
    assert blocked is not None and blocked["reason"] == "NodeSilent"
    reported = [each for each in cloud.api.objects(EVENT) if each["reason"] == "NodeSilent"]
    assert [each["type"] for each in reported] == ["Warning"]

    await cloud.sim.revive(before.node_name)
    assert (await cloud.ended())["phase"] == "Succeeded"
    assert len(cloud.runs) == 2


def _phase_of(cloud: Cloud) -> str:
    held = cloud.api.find(VIRTUAL_MACHINE_INSTANCE, WEB)
    return VmiView.parse(held).phase if held is not None else ""
