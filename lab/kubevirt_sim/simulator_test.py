"""The simulator as operators see it: over HTTP, with nothing but the Kubernetes API.

What is expected is what KubeVirt's source does; README.md names the places.
"""

from __future__ import annotations

import asyncio

import pytest

from lab.kubevirt_sim.conftest import History
from lab.kubevirt_sim.samples import build_disk, build_machine
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.kinds import NODE, POD, PVC, Key, Manifest, uid_of
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import DATA_VOLUME, DataVolumeView
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiView,
    VmView,
)
from libs.contracts.launchers import LauncherView

WEB = Key("default", "web")
ROOT = Key("default", "web-root")


def phase_of(manifest: Manifest) -> str:
    return str((manifest.get("status") or {}).get("phase", ""))


def word_of(manifest: Manifest) -> str:
    return str((manifest.get("status") or {}).get("printableStatus", ""))


async def run(sim: KubeVirtSim, **options: object) -> VmiView:
    """Create a machine and wait until it runs."""
    await sim.client.create(VIRTUAL_MACHINE, build_machine(**options))  # type: ignore[arg-type] # options of the sample
    await sim.converged()
    return await look(sim)


async def look(sim: KubeVirtSim) -> VmiView:
    return VmiView.parse(await sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB))


async def launchers(sim: KubeVirtSim) -> list[LauncherView]:
    return [LauncherView.parse(pod) for pod in (await sim.client.list(POD, "default")).items]


async def test_machine_runs_once_its_disk_is_full(kubevirt_sim: KubeVirtSim) -> None:
    client = kubevirt_sim.client
    await client.create(VIRTUAL_MACHINE, build_machine(disk="web-root"))
    await client.create(DATA_VOLUME, build_disk())
    await kubevirt_sim.converged()

    disk = DataVolumeView.parse(await client.get(DATA_VOLUME, ROOT))
    vm = VmView.parse(await client.get(VIRTUAL_MACHINE, WEB))
    vmi = await look(kubevirt_sim)
    pods = await launchers(kubevirt_sim)
    assert disk.succeeded and disk.progress == 100.0
    assert (vm.printable_status, vm.ready, vm.created) == ("Running", True, True)
    assert vmi.ready and vmi.conditions.holds("AgentConnected")
    assert [pod.uid for pod in pods] == list(vmi.active_pods)
    (interface,) = (await client.get(VIRTUAL_MACHINE_INSTANCE, WEB))["status"]["interfaces"]
    assert (interface["ipAddress"], interface["mac"]) == (pods[0].address, "02:00:00:00:00:01")


async def test_machines_that_start_at_once_have_an_address_each(
    kubevirt_sim: KubeVirtSim,
) -> None:
    machines = [build_machine(f"vm-{number}") for number in range(12)]
    await asyncio.gather(
        *(kubevirt_sim.client.create(VIRTUAL_MACHINE, machine) for machine in machines)
    )
    await kubevirt_sim.converged()

    addresses = [pod.address for pod in await launchers(kubevirt_sim)]
    assert len(addresses) == len(machines)
    assert len(set(addresses)) == len(machines)


async def test_nodes_have_no_range_that_a_controller_manager_would_refuse(
    kubevirt_sim: KubeVirtSim,
) -> None:
    """It does not start while a node has one outside of the range of the cluster."""
    nodes = (await kubevirt_sim.client.list(NODE)).items

    assert nodes and not any("podCIDR" in node["spec"] for node in nodes)


async def test_instance_goes_through_each_phase_in_its_order(
    kubevirt_sim: KubeVirtSim, history: History
) -> None:
    await run(kubevirt_sim)

    phases = history.seen(VIRTUAL_MACHINE_INSTANCE, "web", phase_of)
    assert phases == ["", "Pending", "Scheduling", "Scheduled", "Running"]
    words = history.seen(VIRTUAL_MACHINE, "web", word_of)
    assert words[0] == "" and words[-1] == "Running"
    assert set(words[1:-1]) == {"Starting"}


async def test_deleting_the_instance_restarts_the_machine_with_another_uid(
    kubevirt_sim: KubeVirtSim, history: History
) -> None:
    first = await run(kubevirt_sim)

    await kubevirt_sim.client.delete(VIRTUAL_MACHINE_INSTANCE, WEB, uid=first.uid)
    await kubevirt_sim.converged()

    second = await look(kubevirt_sim)
    assert second.ready and second.uid != first.uid
    assert [pod.owner_uid for pod in await launchers(kubevirt_sim)] == [second.uid]
    phases = history.seen(
        VIRTUAL_MACHINE_INSTANCE, "web", lambda obj: (uid_of(obj) == first.uid, phase_of(obj))
    )
    assert phases.index((True, "Succeeded")) < phases.index((False, ""))


async def test_stopped_flashes_between_two_instances(
    kubevirt_sim: KubeVirtSim, history: History
) -> None:
    """No decision may rest on it: https://github.com/portworx/sched-ops/pull/391."""
    first = await run(kubevirt_sim)

    await kubevirt_sim.client.delete(VIRTUAL_MACHINE_INSTANCE, WEB, uid=first.uid)
    await kubevirt_sim.converged()

    words = history.seen(VIRTUAL_MACHINE, "web", word_of)
    assert words[words.index("Running") :][1] == "Stopping"
    assert "Stopped" in words[words.index("Stopping") :] and words[-1] == "Running"


async def test_halted_machine_ends_its_instance_and_starts_again(
    kubevirt_sim: KubeVirtSim,
) -> None:
    first = await run(kubevirt_sim)
    client = kubevirt_sim.client

    await client.patch(VIRTUAL_MACHINE, WEB, {"spec": {"runStrategy": "Halted"}})
    await kubevirt_sim.converged()

    vm = VmView.parse(await client.get(VIRTUAL_MACHINE, WEB))
    assert await kubevirt_sim.find(VIRTUAL_MACHINE_INSTANCE, WEB) is None
    assert await launchers(kubevirt_sim) == []
    assert (vm.printable_status, vm.created, vm.ready) == ("Stopped", False, False)
    reason = vm.conditions.find("Ready")
    assert reason is not None and reason.reason == "VMINotExists"

    await client.patch(VIRTUAL_MACHINE, WEB, {"spec": {"runStrategy": "Always"}})
    await kubevirt_sim.converged()
    assert (await look(kubevirt_sim)).uid != first.uid


async def test_machine_that_is_deleted_takes_everything_along(
    kubevirt_sim: KubeVirtSim,
) -> None:
    await run(kubevirt_sim)
    vm = await kubevirt_sim.client.get(VIRTUAL_MACHINE, WEB)

    await kubevirt_sim.client.delete(VIRTUAL_MACHINE, WEB, uid=uid_of(vm))
    await kubevirt_sim.converged()

    assert await kubevirt_sim.find(VIRTUAL_MACHINE, WEB) is None
    assert await kubevirt_sim.find(VIRTUAL_MACHINE_INSTANCE, WEB) is None
    assert await launchers(kubevirt_sim) == []


@pytest.mark.parametrize(
    ("guest", "word"),
    [
        ({"image": "ErrImagePull"}, "ErrImagePull"),
        ({"image": "ImagePullBackOff"}, "ImagePullBackOff"),
        ({"unschedulable": "true"}, "ErrorUnschedulable"),
    ],
)
async def test_machine_that_cannot_start_says_why(
    kubevirt_sim: KubeVirtSim, guest: dict[str, str], word: str
) -> None:
    vmi = await run(kubevirt_sim, guest=guest)

    vm = VmView.parse(await kubevirt_sim.client.get(VIRTUAL_MACHINE, WEB))
    assert (vmi.phase, vm.printable_status) == ("Scheduling", word)


async def test_machine_without_its_claim_says_so_and_starts_when_it_comes(
    kubevirt_sim: KubeVirtSim,
) -> None:
    await run(kubevirt_sim, disk="web-root")
    vm = VmView.parse(await kubevirt_sim.client.get(VIRTUAL_MACHINE, WEB))
    assert vm.printable_status == "ErrorPvcNotFound"

    await kubevirt_sim.client.create(DATA_VOLUME, build_disk())
    await kubevirt_sim.converged()

    assert (await look(kubevirt_sim)).ready


async def test_failed_import_shows_at_the_machine(kubevirt_sim: KubeVirtSim) -> None:
    await kubevirt_sim.client.create(DATA_VOLUME, build_disk(guest={"import": "fail"}))
    await kubevirt_sim.client.create(
        VIRTUAL_MACHINE, build_machine(disk="web-root", strategy="Once")
    )
    await kubevirt_sim.converged()

    vm = VmView.parse(await kubevirt_sim.client.get(VIRTUAL_MACHINE, WEB))
    assert vm.printable_status == "DataVolumeError"
    assert (await look(kubevirt_sim)).phase == "Failed"


async def test_finished_data_volume_may_be_collected_and_its_claim_stays(
    kubevirt_sim: KubeVirtSim, fake_api: FakeApi
) -> None:
    """CDI before 1.62: https://github.com/kubevirt/containerized-data-importer/issues/2510."""
    await kubevirt_sim.client.create(DATA_VOLUME, build_disk(guest={"collect": "true"}))
    await kubevirt_sim.converged()

    assert await kubevirt_sim.find(DATA_VOLUME, ROOT) is None
    claim = fake_api.get(PVC, ROOT)
    assert claim["status"]["phase"] == "Bound" and not claim["metadata"].get("ownerReferences")
    assert (await run(kubevirt_sim, disk="web-root")).ready


async def test_guest_that_powers_off_is_started_again_by_always(
    kubevirt_sim: KubeVirtSim, history: History
) -> None:
    first = await run(kubevirt_sim)

    await kubevirt_sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, guest="shutdown")
    await kubevirt_sim.converged()

    second = await look(kubevirt_sim)
    assert second.ready and second.uid != first.uid
    assert "Succeeded" in history.seen(VIRTUAL_MACHINE_INSTANCE, "web", phase_of)


async def test_paused_gate_makes_machine_unready(kubevirt_sim: KubeVirtSim) -> None:
    await run(kubevirt_sim)
    vmi = await kubevirt_sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB)
    paused = {"type": "Paused", "status": "True", "reason": "PausedByUser", "message": "m"}
    conditions = [*vmi["status"]["conditions"], paused]

    await kubevirt_sim.client.patch(
        VIRTUAL_MACHINE_INSTANCE, WEB, {"status": {"conditions": conditions}}
    )
    await kubevirt_sim.converged()

    assert not (await look(kubevirt_sim)).ready
    vm = VmView.parse(await kubevirt_sim.client.get(VIRTUAL_MACHINE, WEB))
    assert (vm.printable_status, vm.ready) == ("Paused", False)


@pytest.mark.parametrize(
    ("guest", "url", "agent"),
    [({}, "linux.qcow2", True), ({"boots": "false"}, "linux.qcow2", False), ({}, "no-boot", False)],
)
async def test_instance_is_ready_even_if_its_disk_does_not_boot(
    kubevirt_sim: KubeVirtSim, guest: dict[str, str], url: str, agent: bool
) -> None:
    disk = build_disk(guest=guest)
    disk["spec"]["source"]["http"]["url"] = f"https://images.example.com/{url}"
    await kubevirt_sim.client.create(DATA_VOLUME, disk)

    vmi = await run(kubevirt_sim, disk="web-root")

    assert vmi.ready, "QEMU runs, and KubeVirt knows no more"
    assert vmi.conditions.holds("AgentConnected") == agent


async def test_settled_simulator_writes_nothing_also_after_a_restart(
    kubevirt_sim: KubeVirtSim, fake_api: FakeApi
) -> None:
    await kubevirt_sim.client.create(DATA_VOLUME, build_disk())
    await run(kubevirt_sim, disk="web-root")
    mark = fake_api.mark()

    await kubevirt_sim.stop()
    await kubevirt_sim.start()
    await kubevirt_sim.converged()

    changes = [each for each in fake_api.writes(since=mark) if each.changed]
    assert changes == []
