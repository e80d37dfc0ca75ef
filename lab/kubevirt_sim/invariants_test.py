"""Whatever people do to a machine, what KubeVirt promises holds in each version of each object."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from lab.kubevirt_sim.samples import build_machine, build_migration
from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.timing import INSTANT
from libs.common.errors import SlipwayError
from libs.common.kinds import POD, Key, Manifest
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    VmiPhase,
    VmiView,
)
from libs.contracts.launchers import LauncherView

WEB = Key("default", "web")
ORDER = list(VmiPhase)
_ACTS_A_LIFE = 10
ACTS = ("restart", "halt", "always", "migrate", "fail-migration", "evict", "crash", "kill-pod")


class Oracle:
    """Check each change of the API server as it happens."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.phases: dict[str, str] = {}
        self.faults: list[str] = []
        api.store.listeners.append(self.look)

    def look(self, change: object) -> None:
        instances = self.api.objects(VIRTUAL_MACHINE_INSTANCE)
        if len(instances) > 1:
            self.faults.append("two instances of one machine")
        for manifest in instances:
            self.check(VmiView.parse(manifest), self.api.objects(POD))

    def check(self, vmi: VmiView, pods: list[Manifest]) -> None:
        before = self.phases.get(vmi.uid, "")
        self.phases[vmi.uid] = vmi.phase
        if ORDER.index(VmiPhase(vmi.phase)) < ORDER.index(VmiPhase(before)):
            self.faults.append(f"{before} -> {vmi.phase}")
        if vmi.phase != VmiPhase.RUNNING:
            return
        if not vmi.active_pods:
            self.faults.append("no active pod")
        if vmi.node_name not in vmi.active_pods.values():
            self.faults.append("the guest is on a node without an active pod")
        views = [LauncherView.parse(pod) for pod in pods]
        live = [view for view in views if view.owner_uid == vmi.uid and view.phase == "Running"]
        if vmi.migrating and not live:
            self.faults.append("a migration without any running pod")


async def perform(sim: KubeVirtSim, act: str, number: int, api: FakeApi) -> None:
    """Do one thing as a person would, who may come too late for it."""
    client, vmi = sim.client, await sim.find(VIRTUAL_MACHINE_INSTANCE, WEB)
    uid = vmi["metadata"]["uid"] if vmi else ""
    if act in ("halt", "always"):
        strategy = "Halted" if act == "halt" else "Always"
        await client.patch(VIRTUAL_MACHINE, WEB, {"spec": {"runStrategy": strategy}})
    elif act in ("migrate", "fail-migration"):
        notes = {"migration": "fail"} if act == "fail-migration" else {}
        migration = build_migration(f"move-{number}", guest=notes)
        await client.create(VIRTUAL_MACHINE_INSTANCE_MIGRATION, migration)
    elif vmi is None:
        return
    elif act == "restart":
        await client.delete(VIRTUAL_MACHINE_INSTANCE, WEB, uid=uid)
    elif act == "evict":
        await sim.evict(WEB)
    elif act == "crash":
        await sim.annotate(VIRTUAL_MACHINE_INSTANCE, WEB, guest="crash")
    else:
        for pod in api.objects(POD)[:1]:
            name, pod_uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            await client.delete(POD, Key("default", name), uid=pod_uid)


async def live_through(rng: random.Random) -> Oracle:
    clock = FakeClock()
    async with FakeApi() as api, KubeVirtSim(api.config, timing=INSTANT, clock=clock) as sim:
        oracle = Oracle(api)
        await sim.client.create(VIRTUAL_MACHINE, build_machine(evictionStrategy="LiveMigrate"))
        await sim.converged()
        for number in range(_ACTS_A_LIFE):
            # Too late, or refused: a person would shrug.
            with contextlib.suppress(SlipwayError):
                await perform(sim, rng.choice(ACTS), number, api)
            if rng.random() < 0.5:
                await sim.converged()
            else:
                for _ in range(rng.randrange(20)):
                    await asyncio.sleep(0)
        await sim.client.patch(VIRTUAL_MACHINE, WEB, {"spec": {"runStrategy": "Always"}})
        for _ in range(3):
            # A start that failed before is tried again after its back-off.
            await sim.converged()
            clock.advance(300)
        await sim.converged()
        vmi = VmiView.parse(await sim.client.get(VIRTUAL_MACHINE_INSTANCE, WEB))
        pods = [LauncherView.parse(pod) for pod in api.objects(POD)]
        if not vmi.ready:
            oracle.faults.append(f"not ready in the end: {vmi.phase}")
        if len([pod for pod in pods if pod.live and pod.phase == "Running"]) != 1:
            oracle.faults.append("not exactly one running pod in the end")
        return oracle


@pytest.mark.parametrize("seed", range(5))
async def test_promises_hold_whatever_people_do(seed: int) -> None:
    oracle = await live_through(random.Random(seed))

    assert oracle.faults == []
