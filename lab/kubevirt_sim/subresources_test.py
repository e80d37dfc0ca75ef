"""Actions of `subresources.kubevirt.io`: codes, refusals, effects; and what the webhooks refuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lab.kubevirt_sim.attach import attach
from lab.kubevirt_sim.samples import build_disk, build_machine, build_migration
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.client import ANY_ANSWER
from libs.common.errors import ApiError, Conflict, UnknownOutcome
from libs.common.kinds import POD, PVC, Key, build_object
from libs.common.reading import maps_at
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.fakeapi.rest import RestClient
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    SUBRESOURCES_GROUP,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    VmiView,
    VmView,
)

WEB = Key("default", "web")


def path_of(action: str, plural: str = "virtualmachines", name: str = "web") -> str:
    return f"/apis/{SUBRESOURCES_GROUP}/v1/namespaces/default/{plural}/{name}/{action}"


async def run(sim: KubeVirtSim, strategy: str = "Always", **options: Any) -> VmiView:
    machine = build_machine(strategy=strategy, **options)
    await sim.client.create(VIRTUAL_MACHINE, machine)
    await sim.converged()
    if strategy == "Manual":
        await sim.client.raw("PUT", path_of("start"), accept=ANY_ANSWER)
        await sim.converged()
    return await look(sim)


async def look(sim: KubeVirtSim) -> VmiView:
    return VmiView.parse(await sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB))


async def machine(sim: KubeVirtSim) -> VmView:
    return VmView.parse(await sim.client.get(VIRTUAL_MACHINE, WEB))


async def requests(sim: KubeVirtSim) -> list[Mapping[str, Any]]:
    return maps_at(await sim.client.get(VIRTUAL_MACHINE, WEB), "status", "stateChangeRequests")


async def refusal(
    sim: KubeVirtSim, action: str, body: object = None, plural: str = "virtualmachines"
) -> tuple[int, str]:
    method = "GET" if action == "guestosinfo" else "PUT"
    with pytest.raises(ApiError) as caught:
        await sim.client.raw(method, path_of(action, plural), body, accept=ANY_ANSWER)
    return caught.value.status, caught.value.message


@pytest.mark.parametrize("force", [False, True])
async def test_restart_makes_another_instance_once(kubevirt_sim: KubeVirtSim, force: bool) -> None:
    first = await run(kubevirt_sim)

    body = {"gracePeriodSeconds": 0} if force else {}
    await kubevirt_sim.client.raw("PUT", path_of("restart"), body, accept=ANY_ANSWER)
    await kubevirt_sim.converged()

    second, vm = await look(kubevirt_sim), await machine(kubevirt_sim)
    assert second.ready and second.uid != first.uid
    assert await requests(kubevirt_sim) == [] and vm.run_strategy == "Always"


async def test_forced_restart_does_not_wait_for_a_long_grace(
    timed_sim: KubeVirtSim, clock: FakeClock, fake_api: FakeApi
) -> None:
    """Upstream: kubevirt/kubevirt#17475."""
    attach(timed_sim, fake_api)
    guest = {"ignores-acpi": "true"}
    machine = build_machine(guest=guest, terminationGracePeriodSeconds=3600)
    await timed_sim.client.create(VIRTUAL_MACHINE, machine)
    await _pass_time(timed_sim, clock, 20)
    first = await look(timed_sim)
    assert first.ready

    await timed_sim.client.raw(
        "PUT", path_of("restart"), {"gracePeriodSeconds": 0}, accept=ANY_ANSWER
    )
    await _pass_time(timed_sim, clock, 30)

    second = await look(timed_sim)
    assert second.ready and second.uid != first.uid


async def _pass_time(sim: KubeVirtSim, clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds // 5):
        clock.advance(5)
        await sim.converged()


async def test_restart_that_is_sent_again_after_a_lost_response_restarts_twice(
    kubevirt_sim: KubeVirtSim, fake_api: FakeApi
) -> None:
    """The server reads the UID when it is called; this is why operators delete by UID instead."""
    first = await run(kubevirt_sim)
    fake_api.fail("PUT", lost_response=True, where=lambda each: each.subresource == "restart")
    with pytest.raises(UnknownOutcome):
        await kubevirt_sim.client.raw("PUT", path_of("restart"), accept=ANY_ANSWER)
    await kubevirt_sim.converged()
    second = await look(kubevirt_sim)

    await kubevirt_sim.client.raw("PUT", path_of("restart"), accept=ANY_ANSWER)
    await kubevirt_sim.converged()

    assert len({first.uid, second.uid, (await look(kubevirt_sim)).uid}) == 3


async def test_stop_and_start_are_written_as_the_strategy(kubevirt_sim: KubeVirtSim) -> None:
    await run(kubevirt_sim)

    await kubevirt_sim.client.raw("PUT", path_of("stop"), {}, accept=ANY_ANSWER)
    await kubevirt_sim.converged()
    assert (await machine(kubevirt_sim)).run_strategy == "Halted"
    assert await kubevirt_sim.find(VIRTUAL_MACHINE_INSTANCE, WEB) is None

    await kubevirt_sim.client.raw("PUT", path_of("start"), {}, accept=ANY_ANSWER)
    await kubevirt_sim.converged()
    assert (await machine(kubevirt_sim)).run_strategy == "Always"
    assert (await look(kubevirt_sim)).ready


async def test_manual_machine_follows_requests_alone(kubevirt_sim: KubeVirtSim) -> None:
    first = await run(kubevirt_sim, "Manual")
    assert first.ready and await requests(kubevirt_sim) == []

    await kubevirt_sim.client.raw("PUT", path_of("stop"), accept=ANY_ANSWER)
    await kubevirt_sim.converged()

    vm = await machine(kubevirt_sim)
    assert (vm.created, vm.printable_status) == (False, "Stopped")
    assert await requests(kubevirt_sim) == []


@pytest.mark.parametrize(
    ("strategy", "action", "body", "code", "text"),
    [
        ("Always", "start", None, 409, "VM is already running"),
        ("Halted", "stop", None, 409, "VM is not running"),
        ("Halted", "restart", None, 409, "RunStategy Halted does not support manual restart"),
        ("Once", "restart", None, 409, "RunStategy Once does not support manual restart"),
        ("Always", "restart", {"gracePeriodSeconds": 5}, 400, "only gracePeriod=0 is supported"),
        ("Halted", "migrate", None, 409, "VM is not running"),
    ],
)
async def test_machine_action_is_refused(
    kubevirt_sim: KubeVirtSim, strategy: str, action: str, body: object, code: int, text: str
) -> None:
    await kubevirt_sim.client.create(VIRTUAL_MACHINE, build_machine(strategy=strategy))
    await kubevirt_sim.converged()

    status, message = await refusal(kubevirt_sim, action, body)

    assert status == code and text in message


async def test_restart_is_refused_while_another_is_under_way(kubevirt_sim: KubeVirtSim) -> None:
    await run(kubevirt_sim)
    await kubevirt_sim.stop()
    await kubevirt_sim.client.raw("PUT", path_of("restart"), accept=ANY_ANSWER)

    status, message = await refusal(kubevirt_sim, "restart")

    assert status == 500 and "stop/start already underway" in message
    await kubevirt_sim.start()


async def test_pause_is_refused_twice(kubevirt_sim: KubeVirtSim) -> None:
    await run(kubevirt_sim)
    plural = "virtualmachineinstances"
    assert (await refusal(kubevirt_sim, "unpause", plural=plural))[1].endswith("VMI is not paused")

    await kubevirt_sim.client.raw("PUT", path_of("pause", plural), accept=ANY_ANSWER)
    await kubevirt_sim.converged()

    assert not (await look(kubevirt_sim)).ready
    assert "VMI is already paused" in (await refusal(kubevirt_sim, "pause", plural=plural))[1]
    assert "VMI is paused" in (await refusal(kubevirt_sim, "softreboot", plural=plural))[1]
    await kubevirt_sim.client.raw("PUT", path_of("unpause", plural), accept=ANY_ANSWER)
    await kubevirt_sim.converged()
    assert (await look(kubevirt_sim)).ready


async def test_soft_reboot_drops_the_agent_and_keeps_the_instance(
    kubevirt_sim: KubeVirtSim, fake_api: FakeApi
) -> None:
    first = await run(kubevirt_sim)
    dropped = []
    fake_api.store.listeners.append(
        lambda change: (
            dropped.append(change.record.obj)
            if change.table[1] == "virtualmachineinstances"
            else None
        )
    )

    await kubevirt_sim.client.raw(
        "PUT", path_of("softreboot", "virtualmachineinstances"), accept=ANY_ANSWER
    )
    await kubevirt_sim.converged()

    second = await look(kubevirt_sim)
    assert second.uid == first.uid and second.conditions.holds("AgentConnected")
    assert not VmiView.parse(dropped[0]).conditions.holds("AgentConnected")


async def test_soft_reboot_ends_an_instance_whose_policy_says_so(
    kubevirt_sim: KubeVirtSim,
) -> None:
    first = await run(kubevirt_sim, domain={"rebootPolicy": "Terminate"})

    await kubevirt_sim.client.raw(
        "PUT", path_of("softreboot", "virtualmachineinstances"), accept=ANY_ANSWER
    )
    await kubevirt_sim.converged()

    assert (await look(kubevirt_sim)).uid != first.uid


async def test_action_on_nothing_is_not_found(kubevirt_sim: KubeVirtSim) -> None:
    status, message = await refusal(kubevirt_sim, "restart")

    assert status == 404 and 'virtualmachine.kubevirt.io "web" not found' in message


async def test_second_migration_is_refused_while_one_is_in_flight(
    kubevirt_sim: KubeVirtSim,
) -> None:
    await run(kubevirt_sim)
    create = kubevirt_sim.client.create
    kind = VIRTUAL_MACHINE_INSTANCE_MIGRATION
    await create(kind, build_migration("a", guest={"migration": "stall"}))

    with pytest.raises(ApiError, match="in-flight migration detected"):
        await create(kind, build_migration("b"))
    with pytest.raises(ApiError, match="does not exist"):
        await create(kind, build_migration("c", vmi="nobody"))


async def test_guest_that_cannot_be_migrated_is_not(kubevirt_sim: KubeVirtSim) -> None:
    await run(kubevirt_sim, guest={"not-migratable": "DisksNotLiveMigratable"})

    with pytest.raises(ApiError, match="Reason: DisksNotLiveMigratable"):
        await kubevirt_sim.client.create(VIRTUAL_MACHINE_INSTANCE_MIGRATION, build_migration())


@pytest.mark.parametrize("spec", [{"running": True, "runStrategy": "Always"}, {}])
async def test_machine_says_once_whether_it_is_to_run(
    kubevirt_sim: KubeVirtSim, spec: dict[str, object]
) -> None:
    """Never both: https://github.com/v1k0d3n/kubevirt-redfish/issues/35."""
    manifest = build_machine()
    manifest["spec"] = {"template": manifest["spec"]["template"], **spec}

    with pytest.raises(ApiError, match=r"Running (and|or) RunStrategy"):
        await kubevirt_sim.client.create(VIRTUAL_MACHINE, manifest)


async def test_disk_over_a_claim_that_is_there_is_refused(
    kubevirt_sim: KubeVirtSim, fake_api: FakeApi
) -> None:
    """As https://github.com/kubevirt/kubevirt/issues/12544 has it: new disks need new names."""
    fake_api.create(
        build_object(
            PVC,
            "web-root",
            "default",
            spec={
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        )
    )

    with pytest.raises(ApiError, match="Destination PVC default/web-root already exists"):
        await kubevirt_sim.client.create(DATA_VOLUME, build_disk())
    assert fake_api.get(PVC, ("default", "web-root"))


@pytest.mark.parametrize(
    ("strategy", "moves", "evicted"),
    [("LiveMigrate", True, False), ("External", False, False), ("None", False, True)],
)
async def test_eviction_of_a_launcher_is_answered_by_strategy(
    kubevirt_sim: KubeVirtSim, fake_api: FakeApi, strategy: str, moves: bool, evicted: bool
) -> None:
    before = await run(kubevirt_sim, evictionStrategy=strategy)
    pod = (await kubevirt_sim.client.list(POD, "default")).items[0]["metadata"]["name"]
    metadata = {"name": pod, "namespace": "default"}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}

    path = POD.path("default", pod, "eviction")
    # Not by the client of the library, which would try again for some seconds.
    async with RestClient(fake_api.url) as rest:
        reply = await rest.create(path, body)
    assert reply.status == (201 if evicted else 429)
    assert evicted or "Eviction triggered evacuation of VMI" in reply.body["message"]
    await kubevirt_sim.converged()

    after = await look(kubevirt_sim)
    assert (after.node_name != before.node_name) == moves or evicted
    assert (after.uid != before.uid) == evicted
    assert bool(after.evacuation_node) == (strategy == "External")


async def test_disk_is_not_changed(kubevirt_sim: KubeVirtSim) -> None:
    await kubevirt_sim.client.create(DATA_VOLUME, build_disk())

    with pytest.raises(ApiError, match="Cannot update DataVolume Spec"):
        await kubevirt_sim.client.patch(
            DATA_VOLUME, Key("default", "web-root"), {"spec": {"source": {"blank": {}}}}
        )


async def test_stop_that_loses_a_race_is_a_conflict(
    kubevirt_sim: KubeVirtSim, fake_api: FakeApi
) -> None:
    await run(kubevirt_sim)
    fake_api.fail("patch", VIRTUAL_MACHINE, status=409)

    with pytest.raises(Conflict, match="Operation cannot be fulfilled on virtualmachine"):
        await kubevirt_sim.client.raw("PUT", path_of("stop"), accept=ANY_ANSWER)
