"""Disks that hold data are not deleted for what CDI, or a claim, says of them later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.actions import Action
from libs.common.kinds import PVC, Key, Manifest, build_object, is_deleting, uid_of
from libs.common.plan import Delete, Patch, Step
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import INSTANCE_UID_LABEL
from operators.compute.api.instance import INSTANCE
from operators.compute.fake_cluster import run_cluster
from operators.compute.instance.observed import DiskView
from operators.compute.instance.reconcile import plan_instance
from operators.compute.instance.teardown import plan_teardown
from operators.compute.naming import KEPT_FOR
from operators.compute.samples import (
    build_instance,
    build_observation,
    build_size,
    parse_instance,
    show_disk,
    show_machine,
    show_run,
)
from operators.compute.scenario import WEB
from operators.compute.simulation import Simulation

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = Key("default", "web-root")
NO_MODE = "no accessMode specified in StorageProfile standard"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
REFUSED = {"type": "Bound", "status": "False", "reason": "ErrClaimNotValid", "message": NO_MODE}


def refuse(simulation: Simulation, phase: str) -> None:
    """Have CDI say that it would not create the claim of the root disk, from now on."""

    def drive(api: FakeApi) -> None:
        disk = api.find(DATA_VOLUME, ROOT)
        wanted = {"phase": phase, "conditions": [REFUSED]}
        if disk is not None and disk.get("status") != wanted:
            api.patch_status(DATA_VOLUME, ROOT, wanted)
        # The fake would fill it again.

    simulation.drive = drive


async def begin(drive: Any = run_cluster) -> Simulation:
    """Have an Instance that runs."""
    simulation = Simulation(drive)
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web"))
    await simulation.settle()
    return simulation


def build_claim(name: str, instance: Manifest, phase: str) -> Manifest:
    """Build the claim of a root disk whose DataVolume is gone, kept for an Instance."""
    uid = uid_of(instance)
    metadata = {"labels": {INSTANCE_UID_LABEL: uid}, "annotations": {KEPT_FOR: uid}}
    return build_object(
        PVC, name, "default", metadata=metadata, spec=CLAIM, status={"phase": phase}
    )


@pytest.mark.parametrize(("phase", "claimed"), [("Succeeded", False), ("", True)])
async def test_disk_with_data_is_not_replaced_because_its_class_lost_its_profile(
    phase: str, claimed: bool
) -> None:
    # CDI judges a DataVolume again whenever it looks at it. Without its StorageProfile, or after a
    # restore from a backup, it refuses one whose claim exists and is full.
    simulation = await begin()
    before = uid_of(simulation.api.get(DATA_VOLUME, ROOT))
    if not claimed:
        simulation.api.vanish(PVC, ROOT)
    refuse(simulation, phase)

    disk = {"rootDisk": {"accessModes": ["ReadWriteOnce"]}}
    simulation.api.patch(INSTANCE, WEB, {"spec": disk})
    await simulation.settle()

    assert uid_of(simulation.api.get(DATA_VOLUME, ROOT)) == before


async def test_refused_disk_without_data_is_replaced() -> None:
    simulation = Simulation(lambda api: None)
    refuse(simulation, "")
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web"))
    await simulation.settle()
    before = uid_of(simulation.api.get(DATA_VOLUME, ROOT))

    disk = {"rootDisk": {"accessModes": ["ReadWriteOnce"]}}
    simulation.api.patch(INSTANCE, WEB, {"spec": disk})
    await simulation.settle()

    assert uid_of(simulation.api.get(DATA_VOLUME, ROOT)) != before


@pytest.mark.parametrize(("phase", "kept"), [("Lost", True), ("Pending", False)])
async def test_replaced_disk_whose_volume_is_lost_is_not_taken_for_one_without_data(
    phase: str, kept: bool
) -> None:
    simulation = await begin()
    # While a machine is off, only disks without data are deleted.
    simulation.api.patch(INSTANCE, WEB, {"spec": {"power": "Stopped"}})
    await simulation.settle()
    instance = simulation.api.get(INSTANCE, WEB)
    simulation.api.create(build_claim("web-root-0", instance, phase))
    simulation.api.patch_status(PVC, Key("default", "web-root-0"), {"phase": phase})

    await simulation.settle()

    held = simulation.api.find(PVC, Key("default", "web-root-0"))
    stays = held is not None and not is_deleting(held)
    assert stays == kept, "its volume may come back, with its data"


def share(disk: DiskView) -> DiskView:
    """Give a disk a second owner, as somebody does who needs it as well."""
    metadata = disk.manifest["metadata"]
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "backup", "uid": "other"}
    owners = [*metadata["ownerReferences"], other]
    return replace(
        disk, manifest={**disk.manifest, "metadata": {**metadata, "ownerReferences": owners}}
    )


def steps_for(disk: DiskView, actions: Iterable[Action]) -> list[Step]:
    found = [action.step for action in actions if isinstance(action.step, Patch | Delete)]
    return [step for step in found if step.key.name == disk.name]


@pytest.mark.parametrize("shared", [False, True])
def test_replaced_disk_that_somebody_else_owns_as_well_is_left_to_them(shared: bool) -> None:
    old = share(show_disk("web-old")) if shared else show_disk("web-old")
    observed = build_observation(
        disks=[show_disk(), old], machine=show_machine(created=True), run=show_run(agent=True)
    )

    (step,) = steps_for(old, plan_instance(parse_instance(), observed, NOW))

    assert isinstance(step, Patch if shared else Delete)
    if isinstance(step, Patch):
        (change,) = step.operations
        assert [each["uid"] for each in change["value"]] == ["other"]


@pytest.mark.parametrize("shared", [False, True])
def test_disk_that_somebody_else_owns_as_well_outlives_the_instance(shared: bool) -> None:
    disk = share(show_disk()) if shared else show_disk()

    ending = plan_teardown(parse_instance(), build_observation(disks=[disk]))

    (step,) = steps_for(disk, ending.actions)
    assert isinstance(step, Patch if shared else Delete)


def test_claim_that_its_datavolume_leaves_behind_is_deleted_with_the_instance() -> None:
    disk = show_disk()
    owner = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "uid": "gone"}
    metadata = {**disk.manifest["metadata"], "ownerReferences": [owner]}
    claim = replace(disk, kind=PVC, manifest={"metadata": metadata})

    ending = plan_teardown(parse_instance(), build_observation(disks=[claim]))

    (step,) = steps_for(claim, ending.actions)
    assert isinstance(step, Delete)
