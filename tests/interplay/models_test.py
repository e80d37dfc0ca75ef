"""The two models of KubeVirt agree: the simulator, and the quick one of compute's crash tests.

The parity suite holds the simulator to the real KubeVirt. Here the same is done to a machine in
both models, and they must report the same of what compute decides upon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from libs.common.kinds import Key, Manifest, build_object
from libs.common.reading import map_at
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from operators.compute.fake_kubevirt import build_crds, run_kubevirt
from tools.kubevirt_sim.simulator import KubeVirtSim
from tools.kubevirt_sim.statuses import holds

WEB: Final = Key("default", "web")
MEMORY: Final = {"template": {"spec": {"domain": {"memory": {"guest": "2Gi"}}}}}
HALTED: Final = {"runStrategy": "Halted"}
ALWAYS: Final = {"runStrategy": "Always"}


def build_web() -> Manifest:
    volumes = [{"name": "root", "dataVolume": {"name": "web-root"}}]
    spec = {"domain": {"cpu": {"sockets": 1}, "memory": {"guest": "1Gi"}}, "volumes": volumes}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    return build_object(
        VIRTUAL_MACHINE, "web", "default", spec={"runStrategy": "Always", "template": template}
    )


def build_root() -> Manifest:
    source = {"http": {"url": "https://images.example.com/linux.img"}}
    storage = {"resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": "web-root", "namespace": "default"},
        "spec": {"source": source, "storage": storage},
    }


def report(vm: Manifest, vmi: Manifest | None) -> dict[str, Any]:
    """Return what compute decides upon."""
    status, generation = map_at(vm, "status"), vm["metadata"]["generation"]
    return {
        "behind": generation - status["observedGeneration"],
        "strategy": status["runStrategy"],
        "running": vmi is not None,
        "created": status.get("created") is True,
        "restart": vmi is not None and holds(vm, "RestartRequired"),
    }


async def play_simulated(changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    async with FakeApi() as api, KubeVirtSim(api.config, rollout="Stage") as sim:
        api.create(build_root())
        api.create(build_web())
        seen = []
        for change in ({}, *changes):
            api.patch(VIRTUAL_MACHINE, WEB, {"spec": dict(change)})
            await sim.converged()
            vmi = api.find(VIRTUAL_MACHINE_INSTANCE, WEB)
            seen.append(report(api.get(VIRTUAL_MACHINE, WEB), vmi))
        return seen


def play_pretended(changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    api = FakeApi()
    for crd in build_crds():
        api.register(crd)
    api.create(build_root())
    api.create(build_web())
    seen = []
    for change in ({}, *changes):
        api.patch(VIRTUAL_MACHINE, WEB, {"spec": dict(change)})
        for _ in range(3):
            run_kubevirt(api)
        seen.append(report(api.get(VIRTUAL_MACHINE, WEB), api.find(VIRTUAL_MACHINE_INSTANCE, WEB)))
    return seen


@pytest.mark.parametrize(
    "changes",
    [
        [HALTED, ALWAYS],
        [HALTED, MEMORY, ALWAYS],
        [MEMORY, HALTED, ALWAYS],
        [{**MEMORY, **HALTED}, ALWAYS],
        [MEMORY, HALTED, MEMORY],
    ],
    ids=["stop", "change-while-off", "change-then-stop", "change-with-stop", "change-and-stay-off"],
)
async def test_both_models_report_the_same(changes: Sequence[Mapping[str, Any]]) -> None:
    simulated = await play_simulated(changes)

    assert play_pretended(changes) == simulated
