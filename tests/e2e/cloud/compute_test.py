"""The compute operator on a real cluster; where its KubeVirt is simulated, no guest runs."""

from __future__ import annotations

import contextlib

import pytest

from libs.common.errors import AlreadyExists
from libs.common.kinds import PVC, Key, Manifest
from libs.contracts.compute import INSTANCE, INSTANCE_SIZE, OPERATION
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiView,
    VmView,
)
from libs.contracts.machine_snapshots import MACHINE_SNAPSHOT
from operators.compute.samples import build_instance, build_operation, build_size
from tests.e2e.cloud.conftest import KubeVirt
from tests.e2e.cluster import Cluster, Serve, eventually


@pytest.fixture(scope="module", autouse=True)
def operator(kubevirt: KubeVirt, serve: Serve) -> None:
    """Install the operator once there is a KubeVirt."""
    serve("compute")


async def operate(cluster: Cluster, namespace: str, type_: str, **spec: object) -> Manifest:
    """Ask for an operation and return its status once it has ended."""
    name = type_.lower()
    operation = build_operation(type_, name, "web", namespace, **spec)
    await cluster.client.create(OPERATION, operation)
    return await cluster.wait_ready(OPERATION, Key(namespace, name))


async def run_web(cluster: Cluster, kubevirt: KubeVirt) -> Key:
    namespace = await cluster.make_namespace("compute")
    web = Key(namespace, "web")
    with contextlib.suppress(AlreadyExists):
        await cluster.client.create(INSTANCE_SIZE, build_size())
    await cluster.client.create(INSTANCE, build_instance("web", namespace, image=kubevirt.image))
    await cluster.wait_ready(INSTANCE, web)
    return web


async def test_instance_runs_is_operated_on_and_goes(cluster: Cluster, kubevirt: KubeVirt) -> None:
    web = await run_web(cluster, kubevirt)
    namespace = web.namespace
    first = await look(cluster, web)
    disks = {each["metadata"]["name"] for each in (await claims(cluster, namespace))}

    await operate(cluster, namespace, "Reboot")
    second = await look(cluster, web)
    assert second.uid != first.uid and second.ready

    await operate(cluster, namespace, "Migrate")
    third = await look(cluster, web)
    assert third.uid == second.uid and third.node_name != second.node_name

    await operate(cluster, namespace, "Rebuild")
    fourth = await look(cluster, web)
    assert fourth.uid != third.uid and fourth.ready
    assert {each["metadata"]["name"] for each in await claims(cluster, namespace)} - disks

    await cluster.delete(INSTANCE, web)
    await cluster.wait_gone(INSTANCE, web)
    await cluster.wait_gone(VIRTUAL_MACHINE, web)

    async def emptied() -> bool:
        return not await claims(cluster, namespace)

    await eventually(emptied, "the disks are gone")


async def test_guest_reboots_is_snapshotted_restored_and_rescued(
    cluster: Cluster, kubevirt: KubeVirt
) -> None:
    web = await run_web(cluster, kubevirt)
    namespace = web.namespace
    first, own = await look(cluster, web), await root_disk(cluster, web)

    await operate(cluster, namespace, "SoftReboot")
    assert (await look(cluster, web)).uid == first.uid

    await operate(cluster, namespace, "Snapshot", snapshot={"name": "kept"})
    assert (await look(cluster, web)).uid == first.uid
    snapshot = await cluster.client.get(MACHINE_SNAPSHOT, Key(namespace, "kept"))
    assert snapshot["status"]["readyToUse"] is True

    await operate(cluster, namespace, "Restore", restore={"snapshot": "kept"})
    restored = await root_disk(cluster, web)
    assert restored != own

    await cluster.client.create(
        OPERATION,
        build_operation("Rescue", "rescue", "web", namespace, rescue={"image": kubevirt.image}),
    )
    rescue = Key(namespace, "rescue")

    async def is_held() -> bool:
        held = await cluster.client.get(OPERATION, rescue)
        return (held.get("status") or {}).get("step") == "Hold"

    await eventually(is_held, "the machine runs from the rescue disk")
    assert await root_disk(cluster, web) != restored
    await cluster.client.patch(OPERATION, rescue, {"spec": {"cancel": True}})
    await cluster.wait_ready(OPERATION, rescue)
    assert await root_disk(cluster, web) == restored
    assert (await look(cluster, web)).ready
    await cluster.delete(INSTANCE, web)
    await cluster.wait_gone(INSTANCE, web)


async def root_disk(cluster: Cluster, key: Key) -> str:
    return VmView.parse(await cluster.client.get(VIRTUAL_MACHINE, key)).disks["root"]


async def look(cluster: Cluster, key: Key) -> VmiView:
    return VmiView.parse(await cluster.client.get(VIRTUAL_MACHINE_INSTANCE, key))


async def claims(cluster: Cluster, namespace: str) -> list[Manifest]:
    return (await cluster.client.list(PVC, namespace)).items
