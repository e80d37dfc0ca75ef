"""Snapshots of machines: what they hold, what they say, and that they lock their machine.

Expected values come from the recordings `03-vmsnapshot` and `05-vm` of KubeVirt of August 2026.
"""

from __future__ import annotations

from typing import Any

import pytest

from lab.kubevirt_sim.attach import attach
from lab.kubevirt_sim.samples import build_disk, build_machine
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.errors import Invalid
from libs.common.kinds import STORAGE_CLASS, Key, Manifest, build_object, uid_of
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import VIRTUAL_MACHINE
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT, MACHINE_SNAPSHOT_CONTENT

WEB = Key("default", "web")
BEFORE = Key("default", "before")


async def start(sim: KubeVirtSim, storage_class: str) -> None:
    standard = build_object(STORAGE_CLASS, "standard", provisioner="rancher.io/local-path")
    await sim.client.create(STORAGE_CLASS, standard)
    disk = build_disk()
    disk["spec"]["storage"] |= {"storageClassName": storage_class}
    await sim.client.create(DATA_VOLUME, disk)
    vm = build_machine(disk="web-root")
    template = vm["spec"]["template"]["spec"]
    template["volumes"].append(
        {"name": "cloud-init", "cloudInitNoCloud": {"secretRef": {"name": "web"}}}
    )
    await sim.client.create(VIRTUAL_MACHINE, vm)
    await sim.converged()


async def take(sim: KubeVirtSim) -> Manifest:
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}
    snapshot = build_object(MACHINE_SNAPSHOT, "before", "default", spec={"source": source})
    await sim.client.create(MACHINE_SNAPSHOT, snapshot)
    await sim.converged()
    return await sim.client.get(MACHINE_SNAPSHOT, BEFORE)


async def test_machine_tells_which_of_its_volumes_can_be_saved(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim, "standard")

    vm = await kubevirt_sim.client.get(VIRTUAL_MACHINE, WEB)
    assert vm["status"]["volumeSnapshotStatuses"] == [
        {
            "name": "root",
            "enabled": False,
            "reason": "No VolumeSnapshotClass: Volume snapshots are not configured for this "
            "StorageClass [standard] [root]",
        },
        {
            "name": "cloud-init",
            "enabled": False,
            "reason": "Snapshot is not supported for this volumeSource type [cloud-init]",
        },
    ]


async def test_snapshot_that_holds_nothing_is_ready_all_the_same(
    kubevirt_sim: KubeVirtSim,
) -> None:
    await start(kubevirt_sim, "standard")

    snapshot = await take(kubevirt_sim)

    status = snapshot["status"]
    assert (status["phase"], status["readyToUse"]) == ("Succeeded", True)
    assert status["snapshotVolumes"] == {"excludedVolumes": ["root", "cloud-init"]}
    assert status["indications"] == ["GuestAgent", "Online", "PartialSnapshot"]
    assert [each["indication"] for each in status["sourceIndications"]] == status["indications"]
    messages = [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]
    assert messages == [("Progressing", "False", "Operation complete"), ("Ready", "True", "Ready")]
    name = f"vmsnapshot-content-{uid_of(snapshot)}"
    content = await kubevirt_sim.client.get(MACHINE_SNAPSHOT_CONTENT, Key("default", name))
    assert "volumeBackups" not in content["spec"]


async def test_snapshot_of_storage_that_can_is_whole(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim, "sim-disks")

    status = (await take(kubevirt_sim))["status"]

    assert status["snapshotVolumes"] == {
        "includedVolumes": ["root"],
        "excludedVolumes": ["cloud-init"],
    }
    assert status["indications"] == ["GuestAgent", "Online"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"runStrategy": "Halted"}, "Cannot update vm running state until snapshot"),
        (
            {"template": {"spec": {"volumes": []}}},
            "Cannot update vm disks or volumes until snapshot",
        ),
    ],
)
async def test_machine_is_locked_while_its_snapshot_is_taken(
    timed_sim: KubeVirtSim, fake_api: FakeApi, clock: FakeClock, change: Any, text: str
) -> None:
    attach(timed_sim, fake_api)
    await start(timed_sim, "sim-disks")
    for _ in range(12):
        clock.advance(5)
        await timed_sim.converged()
    await take(timed_sim)
    vm = await timed_sim.client.get(VIRTUAL_MACHINE, WEB)
    assert vm["status"]["snapshotInProgress"] == "before"

    with pytest.raises(Invalid, match=text):
        await timed_sim.client.patch(VIRTUAL_MACHINE, WEB, {"spec": change})

    clock.advance(3)
    await timed_sim.converged()
    vm = await timed_sim.client.patch(VIRTUAL_MACHINE, WEB, {"spec": change})
    assert "snapshotInProgress" not in vm["status"]
