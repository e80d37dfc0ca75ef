"""The compute and ipam operators on the real KubeVirt, with a guest that boots.

The tests take turns with one machine. Each of them says what a user has at the end: a page that the
guest serves, and how often the guest has booted from its disk.
"""

from __future__ import annotations

import contextlib

from libs.common.errors import AlreadyExists
from libs.common.kinds import Key, Kind, build_object
from libs.common.reading import text_at
from libs.contracts.compute import INSTANCE
from libs.contracts.ip_claims import IP_CLAIM, IP_POOL
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.kubevirt.machine import LARGER, NAMESPACE_NAME, SIZE, WEB, Machine
from tools.guest.serve import MISSING_URL, UNBOOTABLE_URL, URL

ADDRESS = "192.0.2.200"
CLUSTER_PREFERENCE = Kind(
    "instancetype.kubevirt.io",
    "v1beta1",
    "VirtualMachineClusterPreference",
    "virtualmachineclusterpreferences",
)


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

    await web.succeed("SoftReboot")

    assert (await web.run()).uid == run.uid

    async def has_booted() -> bool:
        assert await web.boots() == boots + 1
        return True

    await eventually(has_booted, "the guest has booted once more")


async def test_stop_ends_the_run_and_start_boots_the_same_disk(web: Machine) -> None:
    disk = await web.disk()

    await web.succeed("Stop")
    assert not await web.has_run()
    await web.succeed("Start")

    assert await web.disk() == disk
    await eventually(web.boots, "the guest serves its page")


async def test_resize_gives_the_guest_its_size(web: Machine) -> None:
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


async def test_rebuild_after_a_change_that_waits_for_a_restart(web: Machine) -> None:
    disk = await web.disk()
    await web.change(evictionStrategy="None")

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

    await web.succeed("Rescue", rescue={"image": {"url": URL}, "durationSeconds": 10})

    assert await web.disk() == disk
    await eventually(web.boots, "the guest serves its page")
    assert await web.boots() == boots + 1


async def test_snapshot_fails_on_storage_without_snapshots(web: Machine) -> None:
    held = await web.operate("Snapshot")

    assert text_at(held, "status", "phase") == "Failed", held["status"]
    reasons = {each["reason"] for each in held["status"]["conditions"]}
    assert "SnapshotUnsupported" in reasons, held["status"]


async def test_migrate_moves_the_guest_and_does_not_restart_it(movable: Machine) -> None:
    await eventually(movable.boots, "the guest serves its page")
    before, boots = await movable.run(), await movable.boots()

    await movable.succeed("Migrate")

    after = await movable.run()
    assert after.uid == before.uid
    assert after.node_name != before.node_name
    await eventually(movable.boots, "the guest serves its page from the other node")
    assert await movable.boots() == boots


async def test_public_address_routes_packets_to_the_guest_before_and_after_a_reboot(
    web: Machine, cluster: Cluster
) -> None:
    pool = f"{NAMESPACE_NAME}-public"
    spec = {"family": "IPv4", "addresses": [ADDRESS], "reuseGraceSeconds": 0}
    await cluster.client.create(IP_POOL, build_object(IP_POOL, pool, spec=spec))
    port = {"name": "http", "protocol": "TCP", "port": 80}
    claim = {
        "poolRef": {"name": pool},
        "target": {"kind": INSTANCE.kind, "name": WEB.name},
        "ports": [port],
    }
    key = Key(WEB.namespace, "web")
    try:
        await cluster.client.create(
            IP_CLAIM, build_object(IP_CLAIM, key.name, key.namespace, spec=claim)
        )

        async def answers() -> int:
            return await web.boots(ADDRESS)

        await eventually(answers, "the guest serves its page at its address")
        boots = await web.boots(ADDRESS)
        await web.succeed("Reboot")

        async def answers_again() -> bool:
            assert await web.boots(ADDRESS) == boots + 1
            return True

        await eventually(answers_again, "the guest serves its page at its address again")
    finally:
        await cluster.delete(IP_CLAIM, key)
        await cluster.wait_gone(IP_CLAIM, key)
        await cluster.delete(IP_POOL, Key("", pool))


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
