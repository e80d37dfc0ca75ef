"""The simulator as operators see it: over HTTP, with nothing but the Kubernetes API."""

from __future__ import annotations

from libs.common.contracts.cdi import DATA_VOLUME, DataVolumeView
from libs.common.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiView,
    VmView,
)
from libs.common.contracts.launchers import LauncherView
from libs.common.kinds import POD, Key
from tools.kubevirt_sim.samples import build_disk, build_machine
from tools.kubevirt_sim.simulator import KubeVirtSim

WEB = Key("default", "web")


async def test_machine_runs_once_its_disk_is_full(kubevirt_sim: KubeVirtSim) -> None:
    client = kubevirt_sim.client
    await client.create(VIRTUAL_MACHINE, build_machine(disk="web-root"))
    await client.create(DATA_VOLUME, build_disk())
    await kubevirt_sim.settled()

    disk = DataVolumeView.parse(await client.get(DATA_VOLUME, Key("default", "web-root")))
    vm = VmView.parse(await client.get(VIRTUAL_MACHINE, WEB))
    vmi = VmiView.parse(await client.get(VIRTUAL_MACHINE_INSTANCE, WEB))
    pods = [LauncherView.parse(pod) for pod in (await client.list(POD, "default")).items]
    assert disk.succeeded and disk.progress == 100.0
    assert (vm.printable_status, vm.ready, vm.created) == ("Running", True, True)
    assert vmi.ready and vmi.conditions.holds("AgentConnected")
    assert [pod.uid for pod in pods] == list(vmi.active_pods)
    assert vmi.interfaces[0].addresses == (pods[0].address,)
