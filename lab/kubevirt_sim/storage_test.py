"""Disks as CDI makes them, or does not: profiles, refusals, binding, failing importers.

Expected values come from the recordings `01-dv-no-accessmode`, `05-dv`, `watch-rebuild` and
`watch-all` of CDI of August 2026 on the class `standard` of kind.
"""

from __future__ import annotations

from typing import Any

import pytest

from lab.kubevirt_sim.conftest import History
from lab.kubevirt_sim.samples import build_disk, build_machine
from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.storage import STORAGE_PROFILE, ClaimNotValid, Storage, render_claim
from libs.common.conditions import find_condition
from libs.common.kinds import PVC, STORAGE_CLASS, Key, Manifest, build_object
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import BIND_IMMEDIATELY, DATA_VOLUME
from libs.contracts.kubevirt import VIRTUAL_MACHINE

ROOT = Key("default", "web-root")
STANDARD = Key("", "standard")
SETS = {"claimPropertySets": [{"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}]}


def build_standard(mode: str = "WaitForFirstConsumer") -> Manifest:
    return build_object(
        STORAGE_CLASS, "standard", provisioner="rancher.io/local-path", volumeBindingMode=mode
    )


def build_root(
    *, immediate: bool = True, guest: dict[str, str] | None = None, **storage: Any
) -> Manifest:
    disk = build_disk(guest=guest)
    disk["spec"]["storage"] = {
        "storageClassName": "standard",
        "resources": {"requests": {"storage": "128Mi"}},
        **storage,
    }
    if immediate:
        disk["metadata"]["annotations"][BIND_IMMEDIATELY] = "true"
    return disk


def read(disk: Manifest, type_: str) -> tuple[Any, ...]:
    found = find_condition(disk, type_) or {}
    return tuple(found.get(name, "") for name in ("status", "reason", "message"))


async def fetch(sim: KubeVirtSim) -> Manifest:
    return await sim.client.get(DATA_VOLUME, ROOT)


async def test_disk_on_a_class_that_cdi_does_not_know_is_refused(
    kubevirt_sim: KubeVirtSim,
) -> None:
    client = kubevirt_sim.client
    await client.create(STORAGE_CLASS, build_standard())
    await kubevirt_sim.converged()
    profile = await client.get(STORAGE_PROFILE, STANDARD)
    assert read(profile, "Recognized")[:2] == ("False", "UnrecognizedProvisioner")

    await client.create(DATA_VOLUME, build_root())
    await kubevirt_sim.converged()

    disk = await fetch(kubevirt_sim)
    why = ("False", "ErrClaimNotValid", "no accessMode specified in StorageProfile standard")
    assert (read(disk, "Bound"), read(disk, "Ready")) == (why, why)
    assert read(disk, "Running") == ("False", "", "")
    assert set(disk["status"]) == {"conditions"}, "neither phase nor claim nor progress"
    assert await kubevirt_sim.find(PVC, ROOT) is None

    await client.patch(STORAGE_PROFILE, STANDARD, {"spec": SETS})
    await kubevirt_sim.converged()
    assert (await fetch(kubevirt_sim))["status"]["phase"] == "Succeeded"
    claim = await client.get(PVC, ROOT)
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "142270792"


async def test_disk_waits_for_its_consumer_even_if_it_asks_not_to(
    kubevirt_sim: KubeVirtSim, history: History
) -> None:
    await kubevirt_sim.client.create(STORAGE_CLASS, build_standard())
    await kubevirt_sim.client.create(DATA_VOLUME, build_root(accessModes=["ReadWriteOnce"]))
    await kubevirt_sim.converged()

    phases = history.seen(DATA_VOLUME, "web-root", lambda each: each.get("status", {}).get("phase"))
    assert phases == [
        None,
        "Pending",
        "WaitForFirstConsumer",
        "ImportScheduled",
        "ImportInProgress",
        "Succeeded",
    ]
    disk = await fetch(kubevirt_sim)
    assert read(disk, "Bound") == ("True", "Bound", "PVC web-root Bound")
    assert read(disk, "Running") == ("False", "Completed", "Import Complete")
    assert disk["status"]["progress"] == "100.0%"


async def test_binding_takes_seconds(timed_sim: KubeVirtSim, clock: FakeClock) -> None:
    await timed_sim.client.create(STORAGE_CLASS, build_standard())
    await timed_sim.client.create(DATA_VOLUME, build_root(accessModes=["ReadWriteOnce"]))
    await timed_sim.converged()
    clock.advance(6)
    await timed_sim.converged()
    disk = await fetch(timed_sim)
    assert disk["status"]["phase"] == "WaitForFirstConsumer"
    assert read(disk, "Bound") == ("False", "Pending", "PVC web-root Pending")

    clock.advance(1)
    await timed_sim.converged()
    assert (await fetch(timed_sim))["status"]["phase"] == "ImportInProgress"


async def test_disk_without_the_annotation_waits_for_a_machine(kubevirt_sim: KubeVirtSim) -> None:
    await kubevirt_sim.client.create(STORAGE_CLASS, build_standard())
    disk = build_root(immediate=False, accessModes=["ReadWriteOnce"])
    await kubevirt_sim.client.create(DATA_VOLUME, disk)
    await kubevirt_sim.converged()
    assert (await fetch(kubevirt_sim))["status"]["phase"] == "WaitForFirstConsumer"

    await kubevirt_sim.client.create(VIRTUAL_MACHINE, build_machine(disk="web-root"))
    await kubevirt_sim.converged()
    assert (await fetch(kubevirt_sim))["status"]["phase"] == "Succeeded"


async def test_failing_importer_starts_again_and_the_phase_stays(
    timed_sim: KubeVirtSim, clock: FakeClock
) -> None:
    await timed_sim.client.create(DATA_VOLUME, build_disk(guest={"import": "error"}))
    await timed_sim.client.create(VIRTUAL_MACHINE, build_machine(disk="web-root"))
    await timed_sim.converged()
    clock.advance(10)
    await timed_sim.converged()

    disk = await fetch(timed_sim)
    text = (
        "Unable to connect to http data source: expected status code 200, got 404. "
        "Status: 404 Not Found"
    )
    assert read(disk, "Running") == ("False", "Error", text)
    assert (disk["status"]["phase"], disk["status"]["restartCount"]) == ("ImportInProgress", 1)
    vm = await timed_sim.client.get(VIRTUAL_MACHINE, Key("default", "web"))
    assert vm["status"]["printableStatus"] == "DataVolumeError"

    clock.advance(10)
    await timed_sim.converged()
    assert (await fetch(timed_sim))["status"]["restartCount"] == 2


@pytest.mark.parametrize("class_there", [False, True])
async def test_default_class_of_the_cluster_is_left_alone(
    fake_api: FakeApi, class_there: bool
) -> None:
    if class_there:
        standard = build_standard()
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        fake_api.create({**standard, "metadata": {"name": "standard", "annotations": default}})
    async with KubeVirtSim(fake_api.config) as sim:
        await sim.converged()
        held = await sim.client.get(STORAGE_CLASS, Key("", "sim-disks"))

    notes = held["metadata"].get("annotations") or {}
    assert ("storageclass.kubernetes.io/is-default-class" in notes) == (not class_there)


async def test_disk_of_a_machine_gets_the_class_that_is_meant_for_it(fake_api: FakeApi) -> None:
    standard = build_standard()
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    fake_api.create({**standard, "metadata": {"name": "standard", "annotations": default}})
    disk = build_root()
    del disk["spec"]["storage"]["storageClassName"]
    async with KubeVirtSim(fake_api.config) as sim:
        await sim.client.create(DATA_VOLUME, disk)
        await sim.converged()
        claim = await sim.client.get(PVC, ROOT)

    assert claim["spec"]["storageClassName"] == "sim-disks"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_disk_without_class_and_access_mode_is_refused() -> None:
    disk = build_root()
    del disk["spec"]["storage"]["storageClassName"]

    with pytest.raises(ClaimNotValid, match="no storageClass to choose profile"):
        render_claim(disk, Storage({}, {}))


def test_claim_on_a_block_volume_is_as_large_as_asked_for() -> None:
    disk = build_root(accessModes=["ReadWriteMany"], volumeMode="Block")

    spec = render_claim(disk, Storage({"standard": build_standard()}, {}))

    assert spec["resources"]["requests"]["storage"] == "128Mi"
