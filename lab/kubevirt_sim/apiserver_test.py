"""The simulator with a real API server: CRDs with their rules, APIService, webhooks."""

from __future__ import annotations

import asyncio

import pytest

from lab.kubevirt_sim.samples import build_disk, build_machine, build_migration
from lab.kubevirt_sim.server import GROUP_PATH
from lab.kubevirt_sim.simulator import KubeVirtSim
from libs.common.client import ANY_ANSWER, Client
from libs.common.errors import ApiError, Forbidden, NotFound, SlipwayError
from libs.common.kinds import POD, Key
from libs.contracts.cdi import DATA_VOLUME, DataVolumeView
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    VmiView,
)

pytestmark = pytest.mark.apiserver


async def wait_served(client: Client) -> None:
    """Wait until the API server has found out that the group is served."""
    async with asyncio.timeout(180):
        while True:
            try:
                await client.raw("GET", GROUP_PATH)
            except SlipwayError:
                await asyncio.sleep(0.05)
            else:
                return


async def look(sim: KubeVirtSim, namespace: str) -> VmiView:
    return VmiView.parse(await sim.client.get(VIRTUAL_MACHINE_INSTANCE, Key(namespace, "web")))


async def test_machine_lives_beside_a_real_server(
    real_sim: KubeVirtSim, kube_namespace: str
) -> None:
    client = real_sim.client
    await client.create(DATA_VOLUME, build_disk(namespace=kube_namespace))
    machine = build_machine(
        namespace=kube_namespace, disk="web-root", evictionStrategy="LiveMigrate"
    )
    await client.create(VIRTUAL_MACHINE, machine)
    await real_sim.converged()
    first = await look(real_sim, kube_namespace)
    disk = await client.get(DATA_VOLUME, Key(kube_namespace, "web-root"))
    assert first.ready and DataVolumeView.parse(disk).succeeded

    await wait_served(client)
    restart = f"{GROUP_PATH}/namespaces/{kube_namespace}/virtualmachines/web/restart"
    await client.raw("PUT", restart, {}, accept=ANY_ANSWER)
    await real_sim.converged()
    second = await look(real_sim, kube_namespace)
    assert second.ready and second.uid != first.uid
    with pytest.raises(ApiError, match="only gracePeriod=0 is supported"):
        await client.raw("PUT", restart, {"gracePeriodSeconds": 7}, accept=ANY_ANSWER)

    [pod] = (await client.list(POD, kube_namespace)).items
    metadata = {"name": pod["metadata"]["name"], "namespace": kube_namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    with pytest.raises(Forbidden, match="Eviction triggered evacuation of VMI") as refused:
        await client.raw("POST", POD.path(kube_namespace, metadata["name"], "eviction"), eviction)
    assert refused.value.status == 429
    await real_sim.converged()
    third = await look(real_sim, kube_namespace)
    assert third.uid == second.uid and third.node_name != second.node_name

    vm = await client.get(VIRTUAL_MACHINE, Key(kube_namespace, "web"))
    await client.delete(VIRTUAL_MACHINE, Key(kube_namespace, "web"), uid=vm["metadata"]["uid"])
    await real_sim.converged()
    with pytest.raises(NotFound):
        await look(real_sim, kube_namespace)


async def test_server_and_webhooks_refuse_what_kubevirt_refuses(
    real_sim: KubeVirtSim, kube_namespace: str
) -> None:
    client = real_sim.client
    machine = build_machine(namespace=kube_namespace)
    machine["spec"]["running"] = True
    with pytest.raises(ApiError, match="mutually exclusive"):
        await client.create(VIRTUAL_MACHINE, machine)

    disk = await client.create(DATA_VOLUME, build_disk(namespace=kube_namespace))
    with pytest.raises(ApiError, match="Cannot update DataVolume Spec"):
        await client.patch(
            DATA_VOLUME,
            Key(kube_namespace, disk["metadata"]["name"]),
            {"spec": {"storage": {"resources": {"requests": {"storage": "11Gi"}}}}},
        )

    with pytest.raises(ApiError, match="does not exist"):
        await client.create(
            VIRTUAL_MACHINE_INSTANCE_MIGRATION, build_migration(namespace=kube_namespace)
        )
