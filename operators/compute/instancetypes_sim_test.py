"""Instances by instancetype on the simulated KubeVirt."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from libs.common.kinds import CONTROLLER_REVISION, Manifest, build_object
from libs.common.reading import text_at
from libs.contracts.instancetypes import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, INSTANCETYPE
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from operators.compute.api.instance import INSTANCE
from operators.compute.conftest import WEB, Cloud
from operators.compute.instance.observed import Capacity
from operators.compute.samples import build_operation

DISK = {"rootDisk": {"size": "10Gi"}}


def build_type(name: str, cpus: int, memory: str, namespace: str = "") -> Manifest:
    """Build an instancetype, of the cluster or of a namespace."""
    spec = {"cpu": {"guest": cpus}, "memory": {"guest": memory}}
    kind = INSTANCETYPE if namespace else CLUSTER_INSTANCETYPE
    return build_object(kind, name, namespace, spec=spec)


def instance_of(cloud: Cloud) -> Manifest:
    return cloud.api.get(INSTANCE, WEB)


def ready_of(cloud: Cloud) -> tuple[str, str]:
    conditions = instance_of(cloud)["status"]["conditions"]
    ready = next(each for each in conditions if each["type"] == "Ready")
    return ready["status"], ready["reason"]


def guest_of(cloud: Cloud) -> Capacity:
    return Capacity.of_run(cloud.api.get(VIRTUAL_MACHINE_INSTANCE, WEB))


async def until_reason(cloud: Cloud, reason: str) -> None:
    await cloud.compute.eventually(lambda: ready_of(cloud)[1] == reason, f"Ready says {reason}")


async def resize(cloud: Cloud, name: str = "op", **wanted: Any) -> Manifest:
    cloud.api.patch(INSTANCE, WEB, {"spec": DISK})
    return await cloud.operate("Resize", name, resize={"liveSeconds": 1, **wanted})


async def test_resize_to_an_instancetype_and_back(cloud: Cloud) -> None:
    cloud.api.create(build_type("u1.large", 4, "8Gi"))

    status = await resize(cloud, instancetype={"name": "u1.large"})

    assert status["phase"] == "Succeeded", status
    assert guest_of(cloud) == Capacity(4, Fraction(8 * 2**30))
    shown = instance_of(cloud)
    wanted = {"name": "u1.large", "kind": CLUSTER_INSTANCETYPE.kind}
    assert shown["spec"]["instancetype"] == shown["status"]["instancetype"] == wanted
    assert "size" not in shown["spec"] and "size" not in shown["status"]
    vm = cloud.api.get(VIRTUAL_MACHINE, WEB)
    assert not vm["spec"]["template"]["spec"]["domain"].get("cpu")

    status = await resize(cloud, "back", size="small")

    assert status["phase"] == "Succeeded", status
    assert guest_of(cloud) == Capacity(2, Fraction(4 * 2**30))
    shown = instance_of(cloud)
    assert shown["spec"]["size"] == shown["status"]["size"] == "small"
    assert "instancetype" not in cloud.api.get(VIRTUAL_MACHINE, WEB)["spec"]


async def test_resize_to_an_instancetype_of_the_namespace(cloud: Cloud) -> None:
    cloud.api.create(build_type("mine", 1, "2Gi", WEB.namespace))

    status = await resize(cloud, instancetype={"name": "mine", "kind": INSTANCETYPE.kind})

    assert status["phase"] == "Succeeded", status
    assert guest_of(cloud) == Capacity(1, Fraction(2 * 2**30)), "fewer, so it was restarted"
    assert len(cloud.runs) == 2


async def test_resize_to_what_does_not_exist_changes_nothing(cloud: Cloud) -> None:
    status = await resize(cloud, instancetype={"name": "none"})

    assert (status["phase"], status["reason"]) == ("Failed", "SizeNotFound")
    assert status["message"] == f"{CLUSTER_INSTANCETYPE.kind} none does not exist"
    assert instance_of(cloud)["spec"]["size"] == "small" and len(cloud.runs) == 1


async def test_resize_to_an_instancetype_needs_the_size_of_the_disk(cloud: Cloud) -> None:
    cloud.api.create(build_type("u1.large", 4, "8Gi"))

    status = await cloud.operate("Resize", resize={"instancetype": {"name": "u1.large"}})

    assert (status["phase"], status["reason"]) == ("Failed", "DiskSizeNotSet")
    assert "spec.rootDisk.size" in status["message"]


async def test_instance_waits_for_its_instancetype_and_stays_in_command(cloud: Cloud) -> None:
    wanted = {"size": None, "instancetype": {"name": "later"}, **DISK}
    cloud.api.patch(INSTANCE, WEB, {"spec": wanted})
    await until_reason(cloud, "InstancetypeMissing")
    await cloud.converged()
    assert cloud.run().ready, "the machine keeps its size"

    # KubeVirt would not stop a machine that names an instancetype that does not exist.
    status = await cloud.operate("Stop")
    assert status["phase"] == "Succeeded", status
    cloud.api.create(build_operation("Start", "start"))
    assert (await cloud.ended("start"))["phase"] == "Succeeded"

    cloud.api.create(build_type("later", 4, "8Gi"))
    await cloud.compute.eventually(
        lambda: "instancetype" in cloud.api.get(VIRTUAL_MACHINE, WEB)["spec"], "the machine has it"
    )
    assert (await cloud.operate("Reboot", "again"))["phase"] == "Succeeded"
    await cloud.compute.eventually(
        lambda: text_at(instance_of(cloud), "status", "instancetype", "name") == "later",
        "the guest has the instancetype",
    )
    assert guest_of(cloud) == Capacity(4, Fraction(8 * 2**30))


async def test_missing_preference_does_not_take_the_machine_out_of_command(cloud: Cloud) -> None:
    cloud.api.patch(INSTANCE, WEB, {"spec": {"preference": {"name": "linux"}}})
    await until_reason(cloud, "PreferenceMissing")

    before = cloud.run().uid
    status = await cloud.operate("Reboot")
    assert status["phase"] == "Succeeded", status
    assert (await cloud.running()).uid != before, "KubeVirt starts the next run"

    cloud.api.create(build_object(CLUSTER_PREFERENCE, "linux", spec={}))
    await cloud.compute.eventually(
        lambda: "preference" in cloud.api.get(VIRTUAL_MACHINE, WEB)["spec"], "the machine has it"
    )


async def test_change_of_an_instancetype_in_use_changes_no_machine(cloud: Cloud) -> None:
    cloud.api.create(build_type("u1.large", 4, "8Gi"))
    assert (await resize(cloud, instancetype={"name": "u1.large"}))["phase"] == "Succeeded"

    change = {"spec": {"cpu": {"guest": 1}}}
    cloud.api.patch(CLUSTER_INSTANCETYPE, ("", "u1.large"), change)
    await cloud.converged()
    assert (await cloud.operate("Reboot", "again"))["phase"] == "Succeeded"

    assert guest_of(cloud).cpus == 4, "KubeVirt keeps the revision"
    assert text_at(instance_of(cloud), "status", "instancetype", "name") == "u1.large"
    cloud.api.delete(CLUSTER_INSTANCETYPE, ("", "u1.large"))
    await cloud.converged()
    assert ready_of(cloud)[0] == "True"
    revisions = cloud.api.objects(CONTROLLER_REVISION)
    assert any("u1.large" in each["metadata"]["name"] for each in revisions)
