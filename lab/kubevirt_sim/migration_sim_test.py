"""Live migrations, evictions and lost nodes, as operators see them."""

from __future__ import annotations

import pytest

from lab.kubevirt_sim.conftest import History
from lab.kubevirt_sim.samples import build_disk, build_machine, build_migration
from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.timing import INSTANT, Timing
from libs.common.conditions import find_condition
from libs.common.errors import ApiError, NotFound
from libs.common.kinds import NODE, POD, Key, Manifest
from libs.common.reading import maps_at, text_at
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    VmiView,
)
from libs.contracts.launchers import LauncherView
from libs.contracts.migrations import MigrationView

WEB = Key("default", "web")
MOVE = Key("default", "move")
MIGRATION = VIRTUAL_MACHINE_INSTANCE_MIGRATION


async def run(sim: KubeVirtSim, clock: FakeClock | None = None, **guest: str) -> VmiView:
    """Create a machine and wait until it runs and its agent is connected."""
    notes = {name.replace("_", "-"): value for name, value in guest.items()}
    machine = build_machine(guest=notes, evictionStrategy="LiveMigrate")
    await sim.client.create(VIRTUAL_MACHINE, machine)
    await sim.converged()
    for _ in range(4 if clock else 0):
        assert clock is not None
        clock.advance(5)
        await sim.converged()
    return await look(sim)


async def look(sim: KubeVirtSim) -> VmiView:
    return VmiView.parse(await sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB))


async def find_address(sim: KubeVirtSim) -> str:
    held = await sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB)
    return text_at(maps_at(held, "status", "interfaces")[0], "ipAddress")


async def migration(sim: KubeVirtSim, name: str = "move") -> MigrationView:
    return MigrationView.parse(await sim.client.get(MIGRATION, Key("default", name)))


async def launchers(sim: KubeVirtSim) -> dict[str, LauncherView]:
    items = (await sim.client.list(POD, "default")).items
    return {view.node_name: view for view in map(LauncherView.parse, items)}


def phase_of(manifest: Manifest) -> str:
    return str((manifest.get("status") or {}).get("phase", ""))


async def test_migration_moves_the_guest_to_another_node_and_keeps_the_instance(
    kubevirt_sim: KubeVirtSim, history: History
) -> None:
    before, address = await run(kubevirt_sim), await find_address(kubevirt_sim)

    await kubevirt_sim.client.create(MIGRATION, build_migration())
    await kubevirt_sim.converged()

    after, moved = await look(kubevirt_sim), await migration(kubevirt_sim)
    pods = await launchers(kubevirt_sim)
    assert (after.uid, after.ready) == (before.uid, True)
    assert after.node_name != before.node_name
    assert after.labels["kubevirt.io/nodeName"] == after.node_name
    assert after.migration is not None and after.migration.succeeded and not after.migrating
    assert (after.migration.source_node, after.migration.target_node) == (
        before.node_name,
        after.node_name,
    )
    assert moved.succeeded and moved.state == after.migration
    # The address changes with the pod: https://github.com/kubevirt/kubevirt/issues/14320.
    assert await find_address(kubevirt_sim) == pods[after.node_name].address != address
    assert list(after.active_pods.values()) == [after.node_name]
    assert pods[before.node_name].phase == "Succeeded"
    assert history.seen(MIGRATION, "move", phase_of) == [
        "",
        "Pending",
        "Scheduling",
        "Scheduled",
        "PreparingTarget",
        "TargetReady",
        "Running",
        "Succeeded",
    ]


@pytest.mark.parametrize(
    ("window", "ready"),
    [("both-ready", (True, True)), ("none-ready", (False, False)), ("source-ready", (True, False))],
)
async def test_readiness_of_the_two_pods_in_between_is_as_told(
    timed_sim: KubeVirtSim, clock: FakeClock, window: str, ready: tuple[bool, bool]
) -> None:
    """Both were seen: kubevirt PR 11350, ovn-kubernetes PR 6764."""
    before = await run(timed_sim, clock)
    await timed_sim.client.create(MIGRATION, build_migration(guest={"window": window}))
    await timed_sim.converged()
    for seconds in (0.5, 2):
        clock.advance(seconds)
        await timed_sim.converged()

    during, pods = await look(timed_sim), await launchers(timed_sim)
    assert during.migrating and during.node_name == before.node_name
    assert len(during.active_pods) == 2 and during.migration is not None
    target = during.migration.target_node
    assert (pods[before.node_name].ready, pods[target].ready) == ready

    clock.advance(5)
    await timed_sim.converged()
    after, pods = await look(timed_sim), await launchers(timed_sim)
    assert after.node_name == target and after.ready and pods[target].ready


async def test_failed_migration_leaves_the_guest_where_it_is(kubevirt_sim: KubeVirtSim) -> None:
    before = await run(kubevirt_sim)

    await kubevirt_sim.client.create(MIGRATION, build_migration(guest={"migration": "fail"}))
    await kubevirt_sim.converged()

    after, moved = await look(kubevirt_sim), await migration(kubevirt_sim)
    assert (after.uid, after.node_name, after.ready) == (before.uid, before.node_name, True)
    assert after.migration is not None and after.migration.failed and not after.migrating
    assert moved.phase == "Failed"
    assert (
        moved.state is not None and moved.state.failure_reason == "Live migration failed: injected"
    )
    assert list(after.active_pods) == list(before.active_pods)


async def test_reason_of_a_failure_follows_the_phase(
    kubevirt_sim: KubeVirtSim, history: History
) -> None:
    """As in `updateStatus` of KubeVirt's migration controller: only a final one gets the state."""

    def read(manifest: Manifest) -> tuple[str, str]:
        reason = text_at(manifest, "status", "migrationState", "failureReason")
        return phase_of(manifest), reason

    await run(kubevirt_sim)
    await kubevirt_sim.client.create(MIGRATION, build_migration(guest={"migration": "fail"}))
    await kubevirt_sim.converged()

    seen = history.seen(MIGRATION, "move", read)
    assert seen[-2:] == [("Failed", ""), ("Failed", "Live migration failed: injected")]


async def test_deleted_migration_is_aborted(timed_sim: KubeVirtSim, clock: FakeClock) -> None:
    before = await run(timed_sim, clock)
    await timed_sim.client.create(MIGRATION, build_migration())
    await timed_sim.converged()
    for seconds in (0.5, 2):
        clock.advance(seconds)
        await timed_sim.converged()
    moving = await migration(timed_sim)
    assert moving.phase == "Running"

    await timed_sim.client.delete(MIGRATION, MOVE, uid=moving.uid)
    await timed_sim.converged()

    after = await look(timed_sim)
    assert after.node_name == before.node_name and after.ready
    held = await timed_sim.client.get(VIRTUAL_MACHINE_INSTANCE, after.key)
    state = held["status"]["migrationState"]
    assert (state["abortRequested"], state["abortStatus"]) == (True, "Succeeded")
    with pytest.raises(NotFound):
        await migration(timed_sim)


async def test_migration_without_another_node_waits_and_fails_in_the_end(
    fake_api: FakeApi, clock: FakeClock
) -> None:
    async with KubeVirtSim(fake_api.config, clock=clock, timing=_slow(), nodes=1) as sim:
        await run(sim)
        await sim.client.create(MIGRATION, build_migration())
        await sim.converged()
        assert (await migration(sim)).phase == "Scheduling"

        clock.advance(301)
        await sim.converged()

        assert (await migration(sim)).phase == "Failed"
        assert (await look(sim)).ready


async def test_second_migration_of_an_instance_waits_for_the_first(
    timed_sim: KubeVirtSim, clock: FakeClock
) -> None:
    await run(timed_sim, clock)
    await timed_sim.client.create(MIGRATION, build_migration("a"))
    await timed_sim.converged()
    await timed_sim.client.create(MIGRATION, build_migration("b"))
    await timed_sim.converged()
    assert (await migration(timed_sim, "b")).phase == "Pending"

    for _ in range(6):
        clock.advance(5)
        await timed_sim.converged()

    assert [(await migration(timed_sim, name)).phase for name in "ab"] == ["Succeeded"] * 2


async def test_instance_that_is_to_leave_its_node_is_migrated(
    kubevirt_sim: KubeVirtSim,
) -> None:
    before = await run(kubevirt_sim)

    await kubevirt_sim.evict(WEB)
    await kubevirt_sim.converged()

    after = await look(kubevirt_sim)
    assert after.node_name != before.node_name and after.evacuation_node == ""
    made = (await kubevirt_sim.client.list(MIGRATION, "default")).items
    assert [each["metadata"]["name"][:20] for each in made] == ["kubevirt-evacuation-"]


async def test_external_strategy_leaves_an_eviction_to_others(kubevirt_sim: KubeVirtSim) -> None:
    machine = build_machine(evictionStrategy="External")
    await kubevirt_sim.client.create(VIRTUAL_MACHINE, machine)
    await kubevirt_sim.converged()

    await kubevirt_sim.evict(WEB)
    await kubevirt_sim.converged()

    vmi = await look(kubevirt_sim)
    assert vmi.evacuation_node == vmi.node_name
    assert (await kubevirt_sim.client.list(MIGRATION, "default")).items == []


async def test_silent_node_keeps_its_guest_until_its_pod_is_gone(
    timed_sim: KubeVirtSim, clock: FakeClock, fake_api: FakeApi
) -> None:
    """Nobody else ends it: https://github.com/kubevirt/kubevirt/issues/3332."""
    first = await run(timed_sim, clock)
    await timed_sim.silence(first.node_name)
    await timed_sim.converged()
    node = await timed_sim.client.get(NODE, Key("", first.node_name))
    assert node["status"]["conditions"][-1]["status"] == "Unknown"

    await timed_sim.client.delete(VIRTUAL_MACHINE_INSTANCE, WEB, uid=first.uid)
    clock.advance(3600)
    await timed_sim.converged()
    assert ((await look(timed_sim)).uid, (await look(timed_sim)).phase) == (first.uid, "Running")

    # Somebody who knows that the node is off takes the pod away.
    for pod in (await timed_sim.client.list(POD, "default")).items:
        fake_api.vanish(POD, Key("default", pod["metadata"]["name"]))
    await timed_sim.converged()
    for _ in range(4):
        clock.advance(5)
        await timed_sim.converged()

    second = await look(timed_sim)
    assert second.uid != first.uid and second.node_name != first.node_name and second.ready


async def test_revived_node_goes_on(timed_sim: KubeVirtSim, clock: FakeClock) -> None:
    first = await run(timed_sim, clock)
    await timed_sim.silence(first.node_name)
    await timed_sim.client.delete(VIRTUAL_MACHINE_INSTANCE, WEB, uid=first.uid)
    await timed_sim.converged()

    await timed_sim.revive(first.node_name)
    await timed_sim.converged()
    for _ in range(6):
        clock.advance(5)
        await timed_sim.converged()

    assert (await look(timed_sim)).uid != first.uid


def _slow() -> Timing:
    return INSTANT.model_copy(update={"migration_pending": 300.0})


@pytest.mark.parametrize(
    ("modes", "reason"), [(["ReadWriteOnce"], "DisksNotLiveMigratable"), (["ReadWriteMany"], "")]
)
async def test_access_modes_of_the_disks_decide(
    kubevirt_sim: KubeVirtSim, modes: list[str], reason: str
) -> None:
    disk = build_disk()
    disk["spec"]["storage"]["accessModes"] = modes
    await kubevirt_sim.client.create(DATA_VOLUME, disk)
    await kubevirt_sim.client.create(VIRTUAL_MACHINE, build_machine(disk="web-root"))
    await kubevirt_sim.converged()

    vmi = await kubevirt_sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB)
    found = find_condition(vmi, "LiveMigratable") or {}
    assert found["status"] == str(not reason)
    assert found.get("reason", "") == reason
    info = vmi["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"]
    assert (info["claimName"], info["accessModes"]) == ("web-root", modes)
    if reason:
        assert found["message"] == (
            "cannot migrate VMI: PVC web-root is not shared, live migration requires that all PVCs "
            "must be shared (using ReadWriteMany access mode)"
        )
        with pytest.raises(ApiError, match="DisksNotLiveMigratable"):
            await kubevirt_sim.client.create(VIRTUAL_MACHINE_INSTANCE_MIGRATION, build_migration())


@pytest.mark.parametrize(
    ("interface", "annotated", "live"),
    [
        ({"masquerade": {}}, False, True),
        ({"passtBinding": {}}, False, True),
        ({"bridge": {}}, False, False),
        ({"bridge": {}}, True, True),
    ],
)
async def test_binding_of_the_pod_network_decides(
    kubevirt_sim: KubeVirtSim, interface: Manifest, annotated: bool, live: bool
) -> None:
    vm = build_machine()
    template = vm["spec"]["template"]
    template["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", **interface}]
    if annotated:
        note = "kubevirt.io/allow-pod-bridge-network-live-migration"
        template["metadata"]["annotations"][note] = ""
    await kubevirt_sim.client.create(VIRTUAL_MACHINE, vm)
    await kubevirt_sim.converged()

    vmi = await kubevirt_sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB)
    found = find_condition(vmi, "LiveMigratable") or {}
    assert found["status"] == str(live)
    assert found.get("reason") == (None if live else "InterfaceNotLiveMigratable")


async def test_five_finished_migrations_are_kept(kubevirt_sim: KubeVirtSim) -> None:
    await run(kubevirt_sim)
    for number in range(7):
        await kubevirt_sim.client.create(MIGRATION, build_migration(f"move-{number}"))
        await kubevirt_sim.converged()

    held = (await kubevirt_sim.client.list(MIGRATION, "default")).items
    assert sorted(each["metadata"]["name"] for each in held) == [f"move-{n}" for n in range(2, 7)]
