"""Restores: everything is exported, lost, and imported without UIDs, owners and statuses.

As Velero does, and GitOps, and `kubectl replace --force`. The machine must be the same one
afterwards, whatever came back first, and no Operation may run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson
import pytest

from lab.kubevirt_sim.direct import annotate_new
from libs.common.kinds import PVC, Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.ownership import controller_uid
from libs.common.reading import maps_at, text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import INSTANCE_LABEL
from libs.contracts.ip_claims import IP_CLAIM
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.fake_cluster import run_cluster
from operators.compute.naming import BEGUN_AS, FINALIZER, RECORD
from operators.compute.samples import build_instance, build_operation, build_size
from operators.compute.scenario import NEW, OP, WEB
from operators.compute.simulation import Simulation

KINDS: Final[tuple[Kind, ...]] = (INSTANCE, OPERATION, IP_CLAIM, DATA_VOLUME, PVC, VIRTUAL_MACHINE)
AUTO: Final = {"mode": "Auto", "poolName": "public", "ports": [{"name": "ssh", "port": 22}]}
ROOT: Final = Key("default", "web-root")
FIRST: Final = (PVC, DATA_VOLUME, VIRTUAL_MACHINE, IP_CLAIM, INSTANCE, OPERATION)
LAST: Final = (OPERATION, INSTANCE, IP_CLAIM, PVC, DATA_VOLUME, VIRTUAL_MACHINE)
CLAIMS: Final = (INSTANCE, OPERATION, PVC, IP_CLAIM)
"""Without machine and DataVolume, which the operator and CDI make again."""


async def begin(*operations: Manifest, **spec: Any) -> Simulation:
    """Have an Instance that runs, after some Operations."""
    simulation = Simulation()
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web", **spec))
    await simulation.settle()
    for operation in operations:
        simulation.api.create(operation)
        await simulation.settle()
        assert phase_of(simulation, operation) == "Succeeded"
    return simulation


def phase_of(simulation: Simulation, operation: Manifest) -> str:
    held = simulation.api.get(OPERATION, key_of(operation))
    return text_at(held, "status", "phase")


def export(simulation: Simulation) -> dict[Kind, list[Manifest]]:
    """Export what a backup tool restores: no UID, no owner, no status, no finalizers."""
    return {
        kind: [clean(held) for held in simulation.api.objects(kind) if not is_deleting(held)]
        for kind in KINDS
    }


def clean(held: Manifest) -> Manifest:
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {name: value for name, value in held["metadata"].items() if name in kept}
    return {name: value for name, value in held.items() if name != "status"} | {
        "metadata": metadata
    }


async def restore(backup: dict[Kind, list[Manifest]], order: Sequence[Kind]) -> Simulation:
    """Import a backup into an empty cluster, and start the operator afterwards, as documented.

    KubeVirt and CDI run all the time.
    """
    simulation = Simulation(seed=1)
    simulation.api.create(build_size())
    for kind in order:
        for manifest in backup[kind]:
            simulation.api.create(manifest)
            if kind == PVC:
                bound = {"phase": "Bound"}
                simulation.api.patch_status(PVC, key_of(manifest), bound)
        run_cluster(simulation.api)
    await simulation.settle()
    return simulation


def identity_of(simulation: Simulation) -> dict[str, str]:
    """Return what the guest must find unchanged."""
    machine = simulation.api.get(VIRTUAL_MACHINE, WEB)
    template = machine["spec"]["template"]["spec"]
    return {
        "mac": template["domain"]["devices"]["interfaces"][0]["macAddress"],
        "firmware": template["domain"]["firmware"]["uuid"],
        "disk": template["volumes"][0]["dataVolume"]["name"],
        "state": text_at(simulation.api.get(INSTANCE, WEB), "status", "phase"),
    }


@pytest.mark.parametrize("order", [FIRST, LAST, CLAIMS], ids=["parts first", "last", "claims"])
@pytest.mark.parametrize(
    "operations",
    [
        pytest.param((), id="fresh"),
        pytest.param((build_operation("Rebuild", rebuild={"image": NEW}),), id="rebuilt"),
    ],
)
@pytest.mark.parametrize("kept", ["Delete", "Retain"])
async def test_restored_machine_is_the_same_one(
    order: Sequence[Kind], operations: Sequence[Manifest], kept: str
) -> None:
    policy = {"rootDisk": kept, "publicIP": kept}
    before = await begin(*operations, publicIP=AUTO, deletionPolicy=policy)
    backup = export(before)

    after = await restore(backup, order)

    assert identity_of(after) == identity_of(before)
    assert identity_of(after)["state"] == "Running"
    disks = [key_of(held).name for held in after.api.objects(PVC)]
    assert disks == [key_of(held).name for held in before.api.objects(PVC)]
    for operation in operations:
        held = after.api.get(OPERATION, key_of(operation))["status"]
        assert (held["phase"], held["reason"]) == ("Cancelled", "Copied")
    # A restored machine can be deleted like any other one.
    after.api.delete(INSTANCE, WEB)
    await after.settle()
    left = [
        key_of(held).name
        for kind in (VIRTUAL_MACHINE, IP_CLAIM)
        for held in after.api.objects(kind)
    ]
    assert left == ([] if kept == "Delete" else ["web-public"])


@pytest.mark.parametrize(
    ("type_", "spec"),
    [
        ("Reboot", {}),
        ("Stop", {}),
        ("Rebuild", {"rebuild": {"image": NEW}}),
        ("Resize", {"resize": {"size": "small"}}),
    ],
)
async def test_copy_of_a_finished_operation_does_nothing(type_: str, spec: dict[str, Any]) -> None:
    simulation = await begin(build_operation(type_, **spec))
    copy = clean(simulation.api.get(OPERATION, OP))
    before = simulation.api.objects(VIRTUAL_MACHINE_INSTANCE), simulation.api.objects(DATA_VOLUME)
    simulation.api.delete(OPERATION, OP)
    await simulation.settle()

    simulation.api.create(copy)
    await simulation.settle()

    assert phase_of(simulation, copy) == "Cancelled"
    assert before == (
        simulation.api.objects(VIRTUAL_MACHINE_INSTANCE),
        simulation.api.objects(DATA_VOLUME),
    )


async def test_copy_of_an_operation_that_failed_before_it_began_does_nothing() -> None:
    simulation = await begin()
    simulation.api.create(build_operation("Rebuild", target="other", rebuild={"image": NEW}))
    await simulation.settle()
    copy = clean(simulation.api.get(OPERATION, OP))
    assert copy["metadata"]["annotations"][BEGUN_AS]
    simulation.api.delete(OPERATION, OP)
    await simulation.settle()
    simulation.api.create(build_instance("other"))

    simulation.api.create(copy)
    await simulation.settle()

    assert phase_of(simulation, copy) == "Cancelled"


async def test_copy_of_an_operation_in_progress_withdraws_what_it_asked_for() -> None:
    simulation = await begin()
    rescue = build_operation("Rescue", rescue={"image": NEW, "durationSeconds": 600})
    simulation.api.create(rescue)
    await simulation.settle()
    assert maps_at(simulation.api.get(INSTANCE, WEB), "spec", "directives")

    after = await restore(export(simulation), FIRST)

    assert not maps_at(after.api.get(INSTANCE, WEB), "spec", "directives")
    assert identity_of(after) == {**identity_of(simulation), "disk": "web-root", "state": "Running"}


async def test_restored_instance_waits_for_its_disk() -> None:
    """A new disk would have the name of the one that is restored next."""
    backup = export(await begin())

    after = await restore(backup, (INSTANCE,))

    status = after.api.get(INSTANCE, WEB)["status"]
    assert status["conditions"][0]["reason"] == "DiskMissing"
    assert RECORD in status["conditions"][0]["message"]
    assert after.api.objects(DATA_VOLUME) == []
    # The remedy of the message works.
    after.api.patch(INSTANCE, WEB, {"metadata": {"annotations": {RECORD: None}}})
    await after.settle()
    assert identity_of(after)["state"] == "Running"


async def test_copied_manifest_with_another_name_is_another_machine() -> None:
    simulation = await begin()
    copy = clean(simulation.api.get(INSTANCE, WEB))
    copy["metadata"]["name"] = "other"
    simulation.api.create(copy)
    await simulation.settle()

    macs = {text_at(held, "status", "macAddress") for held in simulation.api.objects(INSTANCE)}
    assert len(macs) == 2
    assert text_at(simulation.api.get(INSTANCE, Key("default", "other")), "status", "phase") == (
        "Running"
    )


async def test_kept_disk_is_used_by_the_next_instance_with_its_name() -> None:
    simulation = await begin(deletionPolicy={"rootDisk": "Retain"})
    before, identity = uid_of(simulation.api.get(PVC, ROOT)), identity_of(simulation)
    simulation.api.delete(INSTANCE, WEB)
    await simulation.settle()

    simulation.api.create(build_instance("web"))
    await simulation.settle()

    assert uid_of(simulation.api.get(PVC, ROOT)) == before
    owner = controller_uid(simulation.api.get(DATA_VOLUME, ROOT))
    assert owner == uid_of(simulation.api.get(INSTANCE, WEB))
    assert identity_of(simulation) == identity, "the guest on the disk knows its MAC address"


@pytest.mark.parametrize("order", [(PVC, INSTANCE), (PVC, DATA_VOLUME, INSTANCE)], ids=len)
async def test_instance_from_its_original_manifest_has_the_identity_of_its_restored_disk(
    order: Sequence[Kind],
) -> None:
    """A backup tool restores the disk, and Argo CD or Flux the Instance."""
    before = await begin(build_operation("Rebuild", rebuild={"image": NEW}))
    backup = {**export(before), INSTANCE: [build_instance("web")]}

    after = await restore(backup, order)

    assert identity_of(after) == identity_of(before)
    record = simulation_record(after)
    assert (record["disk"], record["instance"]) == (identity_of(after)["disk"], "default/web")


def simulation_record(simulation: Simulation) -> dict[str, str]:
    annotations = simulation.api.get(INSTANCE, WEB)["metadata"]["annotations"]
    record: dict[str, str] = orjson.loads(annotations[RECORD])
    return record


async def test_the_user_chooses_between_two_disks_that_an_instance_has_left() -> None:
    simulation = Simulation()
    annotate_new(simulation.api, VIRTUAL_MACHINE_INSTANCE, "agent", "false")
    simulation.api.create(build_size())
    simulation.api.create(build_instance("web", deletionPolicy={"rootDisk": "Retain"}))
    await simulation.settle()
    simulation.api.create(build_operation("Rebuild", rebuild={"image": NEW}))
    await simulation.settle()
    current = identity_of(simulation)
    simulation.api.delete(INSTANCE, WEB)
    await simulation.settle()
    disks = sorted(key_of(held).name for held in simulation.api.objects(DATA_VOLUME))
    assert disks == ["web-root", current["disk"]]

    simulation.api.create(build_instance("web"))
    await simulation.settle()
    condition = simulation.api.get(INSTANCE, WEB)["status"]["conditions"][0]
    assert condition["reason"] == "DiskMissing"
    assert ", ".join(disks) in condition["message"]
    # The remedy of the message works.
    for kind in (DATA_VOLUME, PVC):
        simulation.api.patch(kind, ROOT, {"metadata": {"labels": {INSTANCE_LABEL: None}}})
    await simulation.settle()
    assert identity_of(simulation) == current


async def test_disk_of_somebody_else_is_never_adopted() -> None:
    simulation = Simulation()
    simulation.api.create(build_size())
    foreign = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    metadata = {"name": "web-root", "namespace": "default"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    simulation.api.create({**foreign, "metadata": metadata, "spec": spec})
    simulation.api.create(build_instance("web"))
    await simulation.settle()

    condition = simulation.api.get(INSTANCE, WEB)["status"]["conditions"][0]
    assert condition["reason"] == "Conflict"
    assert "PersistentVolumeClaim default/web-root" in condition["message"]
    assert simulation.api.objects(DATA_VOLUME) == []


async def test_instance_deleted_during_a_rebuild_leaves_one_disk_to_the_next() -> None:
    before = await begin(deletionPolicy={"rootDisk": "Retain"})
    held, identity = uid_of(before.api.get(PVC, ROOT)), identity_of(before)
    annotate_new(before.api, DATA_VOLUME, "import", "stall")
    before.api.create(build_operation("Rebuild", rebuild={"image": NEW}))
    await before.settle()
    assert len(before.api.objects(DATA_VOLUME)) == 2

    before.api.patch(INSTANCE, WEB, {"metadata": {"finalizers": [FINALIZER]}})
    before.api.delete(INSTANCE, WEB)
    await before.settle()
    before.api.create(build_instance("web"))
    await before.settle()

    assert identity_of(before) == identity
    assert [uid_of(each) for each in before.api.objects(PVC)] == [held]
