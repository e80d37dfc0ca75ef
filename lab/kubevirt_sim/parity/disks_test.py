"""Cases of disks and snapshots: profiles, refusals, binding, importers, partial snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.kubevirt_sim.parity.site import Site, list_nodes, read, refused
from lab.kubevirt_sim.storage import STORAGE_PROFILE
from lab.kubevirt_sim.volumes import find_places
from libs.common.conditions import find_condition
from libs.common.kinds import PV, PVC, Key, Manifest, build_object
from libs.common.reading import holds_at, map_at, maps_at, text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE_MIGRATION
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT, MACHINE_SNAPSHOT_CONTENT


async def test_class_that_cdi_does_not_know_has_a_profile_that_says_so(site: Site) -> None:
    """CDI makes a profile for each class; a provisioner that it does not know has no modes."""

    async def probe() -> Manifest | None:
        held = await site.client.get(STORAGE_PROFILE, Key("", site.storage_class))
        return held if find_condition(held, "Recognized") else None

    profile = await site.until(probe, "the profile is there")
    assert read(profile, "Recognized")[:2] == ("False", "UnrecognizedProvisioner")
    assert "claimPropertySets" not in map_at(profile, "status")
    assert text_at(profile, "status", "storageClass") == site.storage_class


async def test_disk_without_access_mode_is_refused(site: Site) -> None:
    """Such a disk has neither phase nor claim; its conditions say why."""
    await site.create_disk()
    text = f"no accessMode specified in StorageProfile {site.storage_class}"
    why = ("False", "ErrClaimNotValid", text)

    async def probe() -> bool:
        disk = await site.disk()
        return read(disk, "Bound") == read(disk, "Ready") == why

    await site.until(probe, "the disk is refused")
    status = map_at(await site.disk(), "status")
    assert not {"phase", "claimName"} & {name for name, value in status.items() if value}
    claims = (await site.client.list(PVC, site.namespace)).items
    assert claims == []


async def test_disk_shows_that_it_waits_even_if_it_asks_not_to(site: Site) -> None:
    """WaitForFirstConsumer shows until the volume is bound, in spite of the annotation."""
    await site.create_disk(accessModes=["ReadWriteOnce"])

    async def waits() -> bool:
        disk = await site.disk()
        found = text_at(disk, "status", "phase") == "WaitForFirstConsumer"
        return found and read(disk, "Bound")[:2] == ("False", "Pending")

    await site.until(waits, "the disk waits for its first consumer")

    async def filled() -> bool:
        return text_at(await site.disk(), "status", "phase") == "Succeeded"

    await site.until(filled, "the disk is filled all the same")


async def test_disk_is_created_for_the_node_that_is_named(site: Site) -> None:
    """CDI copies the annotation of the scheduler to the claim; provisioner and importer follow."""
    await site.require_nodes(2)
    for number, node in enumerate((await list_nodes(site.client))[:2]):
        await site.create_disk(f"disk-{number}", accessModes=["ReadWriteOnce"], node=node)

        async def filled(name: str = f"disk-{number}") -> bool:
            return text_at(await site.disk(name), "status", "phase") == "Succeeded"

        await site.until(filled, "the disk is filled")
        claim = await site.client.get(PVC, Key(site.namespace, f"disk-{number}"))
        volume = await site.client.get(PV, Key("", text_at(claim, "spec", "volumeName")))
        assert find_places(volume) == [node]


async def test_machine_with_disks_of_two_nodes_runs_nowhere(site: Site) -> None:
    """KubeVirt waits, and copies the condition of the pod with the words of the scheduler."""
    await site.require_nodes(2)
    first, second = (await list_nodes(site.client))[:2]
    await site.create_disk(accessModes=["ReadWriteOnce"], node=first)
    await site.create_disk("data", accessModes=["ReadWriteOnce"], node=second)
    await site.create_machine(disk="root", data="data")

    async def probe() -> Manifest | None:
        machine, instance = await site.machine(), await site.instance()
        unschedulable = text_at(machine, "status", "printableStatus") == "ErrorUnschedulable"
        return instance if unschedulable and find_condition(instance, "PodScheduled") else None

    status, reason, message = read(
        await site.until(probe, "no node can run the machine"), "PodScheduled"
    )
    assert (status, reason) == ("False", "Unschedulable")
    assert "nodes are available" in message


async def test_filled_disk_says_so(site: Site) -> None:
    """Conditions and claim of a disk that is filled; the file system costs six percent."""
    await site.fill_disk()

    async def probe() -> bool:
        return read(await site.disk(), "Running")[:2] == ("False", "Completed")

    await site.until(probe, "the importer is done")
    disk = await site.disk()
    assert read(disk, "Bound") == ("True", "Bound", "PVC root Bound")
    assert read(disk, "Ready")[0] == "True"
    assert read(disk, "Running") == ("False", "Completed", "Import Complete")
    assert text_at(disk, "status", "progress") == "100.0%"
    claim = await site.client.get(PVC, Key(site.namespace, "root"))
    assert map_at(claim, "spec", "resources", "requests")["storage"] == "71135396"
    assert text_at(claim, "spec", "volumeMode") in ("", "Filesystem")


async def test_importer_that_fails_starts_again(site: Site) -> None:
    """An image that is not there: the phase stays, the condition has CDI's words."""
    await site.create_disk(url=site.images.missing, accessModes=["ReadWriteOnce"])
    await site.create_machine(disk="root")

    async def probe() -> bool:
        disk = await site.disk()
        status, reason, message = read(disk, "Running")
        restarted = int(map_at(disk, "status").get("restartCount") or 0) >= 1
        messages = (status, reason) == ("False", "Error") and "got 404" in message
        return restarted and messages and text_at(disk, "status", "phase") == "ImportInProgress"

    await site.until(probe, "the importer fails")

    async def messages() -> bool:
        return text_at(await site.machine(), "status", "printableStatus") == "DataVolumeError"

    await site.until(messages, "the machine says so")


async def test_disk_whose_claim_exists_is_refused(site: Site) -> None:
    """A DataVolume does not take over a claim."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": site.storage_class,
        "resources": {"requests": {"storage": "64Mi"}},
    }
    await site.client.create(PVC, build_object(PVC, "root", site.namespace, spec=spec))
    text = f"Destination PVC {site.namespace}/root already exists"
    await refused(site.create_disk(accessModes=["ReadWriteOnce"]), 422, text)


async def test_changed_disk_is_refused(site: Site) -> None:
    """The spec of a DataVolume never changes."""
    await site.create_disk(accessModes=["ReadWriteOnce"])
    change = {"spec": {"storage": {"resources": {"requests": {"storage": "65Mi"}}}}}
    request = site.client.patch(DATA_VOLUME, Key(site.namespace, "root"), change)
    await refused(request, 422, "Cannot update DataVolume Spec")


async def test_disk_without_a_size_is_refused(site: Site) -> None:
    """A DataVolume that is imported names its size."""
    request = site.create_disk(accessModes=["ReadWriteOnce"], resources={})
    await refused(request, 422, "Storage size is missing")


async def test_claim_of_a_disk_has_one_access_mode(site: Site) -> None:
    """A DataVolume that spells its claim out names one access mode."""
    request = {"requests": {"storage": "64Mi"}}
    for modes, text in (
        ([], "at least 1 access mode is required"),
        (["ReadWriteOnce", "ReadWriteMany"], "PVC multiple accessModes"),
    ):
        pvc = {"accessModes": modes, "resources": request}
        spec = {"source": {"blank": {}}, "pvc": pvc}
        disk = build_object(DATA_VOLUME, "root", site.namespace, spec=spec)
        await refused(site.client.create(DATA_VOLUME, disk), 422, text)


async def test_machine_on_a_disk_that_is_not_shared_cannot_move(site: Site) -> None:
    """ReadWriteOnce prevents live migrations, and the webhook refuses them."""
    await site.fill_disk()
    vmi = await site.start_machine(disk="root")
    status, reason, message = read(vmi, "LiveMigratable")
    assert (status, reason) == ("False", "DisksNotLiveMigratable")
    assert message == (
        "cannot migrate VMI: PVC root is not shared, live migration requires that all PVCs must be "
        "shared (using ReadWriteMany access mode)"
    )
    kind = VIRTUAL_MACHINE_INSTANCE_MIGRATION
    migration = build_object(kind, "move", site.namespace, spec={"vmiName": "web"})
    await refused(site.client.create(kind, migration), 400, "DisksNotLiveMigratable")


async def test_unbootable_disk_gives_a_ready_machine_without_agent(site: Site) -> None:
    """An empty disk: ready once QEMU runs, and no agent; only the agent tells the two apart."""
    await site.fill_disk("root", url=site.images.empty)
    vmi = await site.start_machine(disk="root")
    assert holds_at(vmi, "Ready") and find_condition(vmi, "AgentConnected") is None


async def test_booted_guest_connects_its_agent(site: Site) -> None:
    """The agent of a guest that has booted connects; its condition has a time of probe alone."""
    await site.fill_disk()
    await site.start_machine(disk="root")

    async def probe() -> Mapping[str, Any] | None:
        found = find_condition(await site.instance(), "AgentConnected")
        return found if found and found["status"] == "True" else None

    found = await site.until(probe, "the agent connects")
    assert found["lastProbeTime"] and found["lastTransitionTime"] is None


async def test_snapshot_without_a_snapshot_class_holds_nothing(site: Site) -> None:
    """Such a snapshot is ready all the same: only its lists and indications tell."""
    await site.fill_disk()
    await site.create_machine(disk="root", strategy="Halted")
    reason = (
        "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass "
        f"[{site.storage_class}] [root]"
    )

    async def messages() -> bool:
        statuses = maps_at(await site.machine(), "status", "volumeSnapshotStatuses")
        return [(each["enabled"], each.get("reason")) for each in statuses] == [(False, reason)]

    await site.until(messages, "the machine says that its disk cannot be saved")
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}
    snapshot = build_object(MACHINE_SNAPSHOT, "before", site.namespace, spec={"source": source})
    await site.client.create(MACHINE_SNAPSHOT, snapshot)

    async def ready() -> Manifest | None:
        held = await site.client.get(MACHINE_SNAPSHOT, Key(site.namespace, "before"))
        return held if map_at(held, "status").get("readyToUse") else None

    status = map_at(await site.until(ready, "the snapshot is ready"), "status")
    assert status["phase"] == "Succeeded"
    assert status["snapshotVolumes"] == {"excludedVolumes": ["root"]}
    assert status["indications"] == ["PartialSnapshot"]
    name = text_at(status, "virtualMachineSnapshotContentName")
    content = await site.client.get(MACHINE_SNAPSHOT_CONTENT, Key(site.namespace, name))
    assert not map_at(content, "spec").get("volumeBackups")
