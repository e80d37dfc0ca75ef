"""The compute and ipam operators on the real KubeVirt, with a guest that boots.

The tests take turns with one machine. Each of them says what a user has at the end: a page that the
guest serves, and how often the guest has booted from its disk.

Most Operations are tried after a change of the template that waits for the next start. KubeVirt
then reports generations that differ.
"""

from __future__ import annotations

import asyncio
import contextlib

from lab.guest.serve import MISSING_URL, SLOW_URL, UNBOOTABLE_URL, URL
from libs.common.errors import AlreadyExists
from libs.common.kinds import Key, build_object
from libs.common.reading import text_at
from libs.contracts.compute import INSTANCE
from libs.contracts.instancetypes import CLUSTER_PREFERENCE
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.kubevirt.machine import ADDRESS, LARGER, SIZE, WEB, Machine, open_address


async def test_guest_boots_from_its_image(web: Machine) -> None:
    assert (await web.run()).ready
    await eventually(web.boots, "the guest serves its page")
    assert await web.boots() == 1


async def test_reboot_starts_another_run_from_the_same_disk(web: Machine) -> None:
    await eventually(web.boots, "the guest serves its page")
    run, disk, boots = await web.run(), await web.disk(), await web.boots()

    await web.succeed("Reboot")

    assert (await web.run()).uid != run.uid
    assert await web.disk() == disk
    await eventually(web.boots, "the guest serves its page")
    assert await web.boots() == boots + 1


async def test_soft_reboot_reaches_the_guest_in_the_same_run(web: Machine) -> None:
    await eventually(web.boots, "the guest serves its page")
    run, boots = await web.run(), await web.boots()
    await web.change_template()

    await web.succeed("SoftReboot")

    assert (await web.run()).uid == run.uid

    async def has_booted() -> bool:
        assert await web.boots() == boots + 1
        return True

    await eventually(has_booted, "the guest has booted once more")


async def test_stop_ends_the_run_and_start_boots_the_same_disk(web: Machine) -> None:
    disk = await web.disk()
    await web.change_template()

    await web.succeed("Stop")
    assert not await web.has_run()
    await web.change_template()
    await web.succeed("Start")

    assert await web.disk() == disk
    await eventually(web.boots, "the guest serves its page")


async def test_resize_gives_the_guest_its_size(web: Machine) -> None:
    await web.change_template()

    await web.succeed("Resize", resize={"size": LARGER})

    assert await web.memory() == "288Mi"
    await web.succeed("Resize", resize={"size": SIZE})
    assert await web.memory() == "256Mi"


async def test_rebuild_boots_a_new_disk_and_deletes_the_old_one(web: Machine) -> None:
    disk = await web.disk()

    await web.succeed("Rebuild")

    assert await web.disk() != disk
    await eventually(web.boots, "the guest serves its page")
    assert await web.boots() == 1

    async def is_deleted() -> bool:
        return disk not in await web.claims()

    await eventually(is_deleted, "the old disk is deleted")


async def test_rebuild_with_a_disk_that_cannot_boot_returns_to_the_old_disk(web: Machine) -> None:
    await eventually(web.boots, "the guest serves its page")
    disk, boots = await web.disk(), await web.boots()
    await web.change_template()

    held = await web.operate(
        "Rebuild", rebuild={"image": {"url": UNBOOTABLE_URL}, "readySeconds": 60}
    )

    assert text_at(held, "status", "phase") != "Succeeded", held["status"]
    assert await web.disk() == disk
    await eventually(web.boots, "the guest serves its page")
    assert await web.boots() > boots


async def test_rebuild_with_an_image_that_is_missing_leaves_the_run_alone(web: Machine) -> None:
    run, disk = await web.run(), await web.disk()

    held = await web.operate("Rebuild", rebuild={"image": {"url": MISSING_URL}}, timeoutSeconds=60)

    assert text_at(held, "status", "phase") != "Succeeded", held["status"]
    assert (await web.run()).uid == run.uid
    assert await web.disk() == disk


async def test_rebuild_with_a_disk_that_fills_slowly_leaves_the_run_alone_until_then(
    web: Machine, slow_image: None
) -> None:
    await eventually(web.boots, "the guest serves its page")
    run, disk, boots = await web.run(), await web.disk(), await web.boots()
    rebuild = asyncio.create_task(web.operate("Rebuild", rebuild={"image": {"url": SLOW_URL}}))
    seen = 0

    try:
        while not rebuild.done():
            filling = await web.filling()
            now, used = await web.run() if filling else run, await web.disk()
            page = await web.boots() if filling else boots
            # What was seen counts if the disk is still not filled.
            if filling and await web.filling() == filling:
                assert (now.uid, now.deleting, used, page) == (run.uid, False, disk, boots)
                assert disk in await web.claims()
                seen += 1
            await asyncio.sleep(1)
        held = await rebuild
    finally:
        rebuild.cancel()

    assert seen >= 5, "the disk filled too fast for this test"
    assert text_at(held, "status", "phase") == "Succeeded", held["status"]
    assert await web.disk() != disk
    await eventually(web.boots, "the guest serves its page")
    assert await web.boots() == 1


async def test_rebuild_after_a_change_that_waits_for_a_restart(web: Machine) -> None:
    disk = await web.disk()
    await web.change(evictionStrategy="None")
    await web.change_template()

    await web.succeed("Rebuild")

    assert await web.disk() != disk
    await eventually(web.boots, "the guest serves its page")
    assert await web.boots() == 1
    await web.change(evictionStrategy="LiveMigrateIfPossible")


async def test_preference_chooses_the_devices_of_the_next_run(web: Machine) -> None:
    preference = build_object(
        CLUSTER_PREFERENCE, "e2e-sata", spec={"devices": {"preferredDiskBus": "sata"}}
    )
    with contextlib.suppress(AlreadyExists):
        await web.cluster.client.create(CLUSTER_PREFERENCE, preference)
    await web.change(preference={"name": "e2e-sata"})

    await web.succeed("Reboot")

    assert set(await web.buses()) == {"sata"}
    await eventually(web.boots, "the guest serves its page")
    await web.change(preference=None)
    await web.succeed("Reboot")
    assert set(await web.buses()) == {"virtio"}
    await web.cluster.delete(CLUSTER_PREFERENCE, Key("", "e2e-sata"))


async def test_rebuild_while_off_after_a_change_of_the_size(web: Machine) -> None:
    disk = await web.disk()
    await web.succeed("Stop")
    await web.change(size=LARGER)

    await web.succeed("Rebuild")
    await web.succeed("Start")

    assert await web.disk() != disk
    assert await web.memory() == "288Mi"
    await eventually(web.boots, "the guest serves its page")
    await web.succeed("Resize", resize={"size": SIZE})


async def test_rescue_returns_to_the_own_disk(web: Machine) -> None:
    await eventually(web.boots, "the guest serves its page")
    disk, boots = await web.disk(), await web.boots()
    await web.change_template()

    await web.succeed("Rescue", rescue={"image": {"url": URL}, "durationSeconds": 10})

    assert await web.disk() == disk
    await eventually(web.boots, "the guest serves its page")
    assert await web.boots() == boots + 1


async def test_snapshot_fails_on_storage_without_snapshots(web: Machine) -> None:
    held = await web.operate("Snapshot")

    assert text_at(held, "status", "phase") == "Failed", held["status"]
    reasons = {each["reason"] for each in held["status"]["conditions"]}
    assert "SnapshotUnsupported" in reasons, held["status"]


async def test_restore_boots_the_disk_of_the_snapshot(saved: Machine) -> None:
    await eventually(saved.boots, "the guest serves its page")
    disk, boots = await saved.disk(), await saved.boots()
    await saved.change_template()
    await saved.succeed("Snapshot", snapshot={"name": "e2e-before"})
    for _ in range(2):
        await saved.succeed("Reboot")
        await eventually(saved.boots, "the guest serves its page")
    assert await saved.boots() == boots + 2
    await saved.change_template()

    await saved.succeed("Restore", restore={"snapshot": "e2e-before"})

    assert await saved.disk() != disk
    await eventually(saved.boots, "the guest serves its page")
    assert await saved.boots() == boots + 1, "the disk is as it was when the snapshot was taken"
    await _restore_while_off(saved, boots)


async def _restore_while_off(saved: Machine, boots: int) -> None:
    disk = await saved.disk()
    await saved.succeed("Stop")
    await saved.change_template()

    await saved.succeed("Restore", restore={"snapshot": "e2e-before"})
    assert not await saved.has_run()
    await saved.succeed("Start")

    assert await saved.disk() != disk
    await eventually(saved.boots, "the guest serves its page")
    assert await saved.boots() == boots + 1, "the disk is as it was when the snapshot was taken"


async def test_instance_by_instancetype_has_its_size_and_is_resized(typed: Machine) -> None:
    await eventually(typed.boots, "the guest serves its page")
    disk = await typed.disk()
    assert await typed.memory() == "288Mi"
    assert set(await typed.buses()) == {"sata"}
    assert await typed.shown("instancetype", "name") == typed.key.name

    await typed.succeed("Resize", resize={"size": SIZE})

    assert (await typed.memory(), await typed.shown("size")) == ("256Mi", SIZE)
    await typed.succeed("Resize", resize={"instancetype": {"name": typed.key.name}})

    assert await typed.memory() == "288Mi"
    assert await typed.shown("instancetype", "name") == typed.key.name
    assert await typed.disk() == disk
    await eventually(typed.boots, "the guest serves its page")


async def test_missing_instancetype_does_not_take_the_machine_out_of_command(
    typed: Machine,
) -> None:
    await eventually(typed.boots, "the guest serves its page")
    await typed.change(instancetype={"name": "e2e-missing"})
    assert "e2e-missing" in await typed.shown("message")

    await typed.succeed("Stop")
    assert not await typed.has_run()
    await typed.succeed("Start")

    assert await typed.memory() == "288Mi"
    await eventually(typed.boots, "the guest serves its page")


async def test_migrate_moves_the_guest_and_does_not_restart_it(movable: Machine) -> None:
    await eventually(movable.boots, "the guest serves its page")
    before, boots = await movable.run(), await movable.boots()
    await movable.change_template()

    await movable.succeed("Migrate")

    after = await movable.run()
    assert after.uid == before.uid
    assert after.node_name != before.node_name
    await eventually(movable.boots, "the guest serves its page from the other node")
    assert await movable.boots() == boots


async def test_public_address_routes_packets_to_the_guest_before_and_after_a_reboot(
    web: Machine, cluster: Cluster
) -> None:
    async with open_address(cluster, web):
        await eventually(lambda: web.boots(ADDRESS), "the guest serves its page at its address")
        boots = await web.boots(ADDRESS)
        await web.succeed("Reboot")

        async def answers_again() -> bool:
            assert await web.boots(ADDRESS) == boots + 1
            return True

        await eventually(answers_again, "the guest serves its page at its address again")


async def test_public_address_routes_packets_to_the_guest_before_and_after_a_migration(
    movable: Machine, cluster: Cluster
) -> None:
    async with open_address(cluster, movable):
        await eventually(lambda: movable.boots(ADDRESS), "the guest serves its page at its address")
        before, boots = await movable.run(), await movable.boots(ADDRESS)

        await movable.succeed("Migrate")

        after = await movable.run()
        assert (after.uid, after.node_name != before.node_name) == (before.uid, True)
        await eventually(lambda: movable.boots(ADDRESS), "the address leads to the other node")
        assert await movable.boots(ADDRESS) == boots, "the guest did not boot again"


async def test_deleted_instance_leaves_the_disk_that_must_stay(
    web: Machine, cluster: Cluster
) -> None:
    disk = await web.disk()
    retain = {"spec": {"deletionPolicy": {"rootDisk": "Retain"}}}
    await cluster.client.patch(INSTANCE, WEB, retain)
    await cluster.wait_ready(INSTANCE, WEB)

    await cluster.delete(INSTANCE, WEB)
    await cluster.wait_gone(INSTANCE, WEB)

    assert not await web.has_run()
    assert disk in await web.claims()
