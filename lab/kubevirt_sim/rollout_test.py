"""Changes of a template: which generation is reported, what reaches the guest, what waits.

Expected values come from the recordings `04-vm-stuck`, `3-template` and `02-vmi-after-resize` of
KubeVirt of August 2026, and from vm.go if no recording shows the case.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lab.kubevirt_sim.samples import build_machine, build_migration
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.conditions import find_condition
from libs.common.kinds import CONTROLLER_REVISION, Key, Manifest
from libs.common.reading import holds_at
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)

WEB = Key("default", "web")
TOO_MUCH = (
    "memory hotplug not supported, Guest memory is greater than the configured maxGuest memory"
)
MEMORY = {"memory": {"guest": "2Gi"}}


@pytest.fixture
async def staged(fake_api: FakeApi) -> AsyncIterator[KubeVirtSim]:
    """Simulate an installation whose rollout strategy is Stage."""
    async with KubeVirtSim(fake_api.config, clock=FakeClock(), rollout="Stage") as sim:
        yield sim


async def start(sim: KubeVirtSim) -> None:
    vm = build_machine()
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain |= {"cpu": {"cores": 1, "sockets": 1, "threads": 1}, **MEMORY}
    await sim.client.create(VIRTUAL_MACHINE, vm)
    await sim.converged()


async def change(sim: KubeVirtSim, template: Manifest | None = None, strategy: str = "") -> None:
    spec: Manifest = {"template": {"spec": template}} if template else {}
    spec |= {"runStrategy": strategy} if strategy else {}
    await sim.client.patch(VIRTUAL_MACHINE, WEB, {"spec": spec})
    await sim.converged()


async def machine(sim: KubeVirtSim) -> Manifest:
    return await sim.client.get(VIRTUAL_MACHINE, WEB)


async def instance(sim: KubeVirtSim) -> Manifest:
    return await sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB)


def generations(vm: Manifest) -> tuple[Any, ...]:
    status = vm["status"]
    return (
        vm["metadata"]["generation"],
        status.get("desiredGeneration"),
        status.get("observedGeneration"),
    )


async def test_new_machine_reports_the_generation_that_it_runs(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)

    vm, vmi = await machine(kubevirt_sim), await instance(kubevirt_sim)
    assert generations(vm) == (1, 1, 1)
    assert vm["status"]["runStrategy"] == "Always"
    assert vmi["metadata"]["annotations"]["kubevirt.io/vm-generation"] == "1"
    name = f"revision-start-vm-{vm['metadata']['uid']}-1"
    assert vmi["status"]["virtualMachineRevisionName"] == name
    revision = await kubevirt_sim.client.get(CONTROLLER_REVISION, Key("default", name))
    assert revision["data"]["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "2Gi"}


async def test_machine_that_never_ran_reports_neither_generation_nor_strategy(
    kubevirt_sim: KubeVirtSim,
) -> None:
    await kubevirt_sim.client.create(VIRTUAL_MACHINE, build_machine(strategy="Halted"))
    await kubevirt_sim.converged()

    vm = await machine(kubevirt_sim)
    assert generations(vm) == (1, None, None)
    assert "runStrategy" not in vm["status"]


async def test_stop_alone_raises_the_generation(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)

    await change(kubevirt_sim, strategy="Halted")

    vm = await machine(kubevirt_sim)
    assert generations(vm) == (2, 2, 2)
    assert vm["status"]["runStrategy"] == "Halted"


@pytest.mark.parametrize("together", [True, False])
async def test_stop_with_a_changed_template_never_shows_the_generation(
    kubevirt_sim: KubeVirtSim, together: bool
) -> None:
    await start(kubevirt_sim)

    template: Manifest = {"domain": {"cpu": {"cores": 2}}}
    if not together:
        await change(kubevirt_sim, template)
    await change(kubevirt_sim, template, strategy="Halted")

    vm = await machine(kubevirt_sim)
    last = 2 if together else 3
    assert generations(vm) == (last, last, 1)
    assert (vm["status"]["runStrategy"], vm["status"]["printableStatus"]) == ("Halted", "Stopped")
    assert holds_at(vm, "RestartRequired"), "it outlives the instance"


async def test_change_of_a_machine_that_is_off_is_not_observed(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)
    await change(kubevirt_sim, strategy="Halted")

    await change(kubevirt_sim, {"domain": {"cpu": {"sockets": 2}}})
    assert generations(await machine(kubevirt_sim)) == (3, 2, 2)

    await change(kubevirt_sim, strategy="Always")
    assert generations(await machine(kubevirt_sim)) == (4, 4, 4)
    assert [len((await kubevirt_sim.client.list(CONTROLLER_REVISION, "default")).items)] == [1]


async def test_restart_is_required_until_the_next_start(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)
    first = await instance(kubevirt_sim)

    await change(kubevirt_sim, {"domain": {"cpu": {"cores": 2}}})
    found = find_condition(await machine(kubevirt_sim), "RestartRequired")
    assert found is not None and found["status"] == "True"
    assert found["message"] == "a non-live-updatable field was changed in the template spec"

    uid = first["metadata"]["uid"]
    await kubevirt_sim.client.delete(VIRTUAL_MACHINE_INSTANCE, WEB, uid=uid)
    await kubevirt_sim.converged()
    assert find_condition(await machine(kubevirt_sim), "RestartRequired") is None
    assert generations(await machine(kubevirt_sim)) == (2, 2, 2)


async def test_change_that_is_taken_back_requires_no_restart(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)
    await change(kubevirt_sim, {"domain": {"cpu": {"cores": 2}}})

    await change(kubevirt_sim, {"domain": {"cpu": {"cores": 1}}})

    vm = await machine(kubevirt_sim)
    assert find_condition(vm, "RestartRequired") is None
    assert generations(vm) == (3, 3, 3)


async def test_new_sockets_reach_the_instance_and_not_its_guest(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)

    await change(kubevirt_sim, {"domain": {"cpu": {"sockets": 2}}})

    vm, vmi = await machine(kubevirt_sim), await instance(kubevirt_sim)
    assert vmi["spec"]["domain"]["cpu"]["sockets"] == 2
    assert vmi["spec"]["domain"]["cpu"]["maxSockets"] == 4
    assert vmi["status"]["currentCPUTopology"] == {"cores": 1, "sockets": 1, "threads": 1}
    assert holds_at(vmi, "HotVCPUChange") and holds_at(vm, "HotVCPUChange")
    assert find_condition(vm, "RestartRequired") is None
    assert generations(vm) == (2, 2, 1), "the template is no longer that of the revision"


async def test_second_change_waits_for_the_first(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)
    await change(kubevirt_sim, {"domain": {"cpu": {"sockets": 2}}})

    await change(kubevirt_sim, {"domain": {"cpu": {"sockets": 3}}})

    found = find_condition(await machine(kubevirt_sim), "Failure") or {}
    assert found["reason"] == "HotPlugCPUError"
    assert found["message"].endswith("another CPU hotplug is in progress")
    assert (await instance(kubevirt_sim))["spec"]["domain"]["cpu"]["sockets"] == 2


async def test_migration_gives_the_guest_what_is_pending(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)
    wanted = {"cpu": {"sockets": 2}, "memory": {"guest": "4Gi"}}
    await change(kubevirt_sim, {"domain": wanted})
    vmi = await instance(kubevirt_sim)
    assert holds_at(vmi, "HotVCPUChange") and holds_at(vmi, "HotMemoryChange")
    assert vmi["status"]["memory"]["guestCurrent"] == "2Gi"

    await kubevirt_sim.client.create(VIRTUAL_MACHINE_INSTANCE_MIGRATION, build_migration())
    await kubevirt_sim.converged()

    vmi = await instance(kubevirt_sim)
    assert not holds_at(vmi, "HotVCPUChange") and not holds_at(vmi, "HotMemoryChange")
    assert vmi["status"]["currentCPUTopology"]["sockets"] == 2
    assert vmi["status"]["memory"] == {
        "guestAtBoot": "2Gi",
        "guestCurrent": "4Gi",
        "guestRequested": "4Gi",
    }


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (
            {"cpu": {"sockets": 5}},
            "CPU sockets updated in template spec to a value higher than what's available",
        ),
        (
            {"memory": {"guest": "1Gi"}},
            "memory updated in template spec to a value lower than what the VM started with",
        ),
        (
            {"memory": {"guest": "9Gi"}},
            TOO_MUCH,
        ),
    ],
)
async def test_change_beyond_what_is_available_requires_a_restart(
    kubevirt_sim: KubeVirtSim, domain: Manifest, message: str
) -> None:
    await start(kubevirt_sim)

    await change(kubevirt_sim, {"domain": domain})

    found = find_condition(await machine(kubevirt_sim), "RestartRequired") or {}
    assert found.get("message") == message


async def test_placement_reaches_the_instance(kubevirt_sim: KubeVirtSim) -> None:
    await start(kubevirt_sim)

    await change(kubevirt_sim, {"nodeSelector": {"zone": "a"}})
    assert (await instance(kubevirt_sim))["spec"]["nodeSelector"] == {"zone": "a"}

    await change(kubevirt_sim, {"nodeSelector": None})
    assert "nodeSelector" not in (await instance(kubevirt_sim))["spec"]
    assert find_condition(await machine(kubevirt_sim), "RestartRequired") is None


async def test_under_stage_each_change_requires_a_restart(staged: KubeVirtSim) -> None:
    await start(staged)

    await change(staged, {"domain": {"cpu": {"sockets": 2}}})

    assert holds_at(await machine(staged), "RestartRequired")
    assert (await instance(staged))["spec"]["domain"]["cpu"]["sockets"] == 1
