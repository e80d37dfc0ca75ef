"""The simulator beside a real API server: CRDs with their rules, APIService, webhooks."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.common.client import Client
from libs.common.contracts.cdi import DATA_VOLUME, DataVolumeView
from libs.common.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
    VmiView,
)
from libs.common.errors import ApiError, NotFound, SlipwayError, TooManyRequests
from libs.common.kinds import POD, SERVICE, Key, build_object
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.certificates import create_certificates
from tools.kubevirt_sim.registration import API_SERVICE, NAME, WEBHOOKS, build_registration
from tools.kubevirt_sim.samples import build_disk, build_machine, build_migration
from tools.kubevirt_sim.server import GROUP_PATH, ActionServer
from tools.kubevirt_sim.simulator import KubeVirtSim

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def real_sim(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str, tmp_path: Path
) -> AsyncIterator[KubeVirtSim]:
    """Simulate beside a real API server, which asks us for actions and reviews."""
    create_certificates(tmp_path, (f"{NAME}.{kube_namespace}.svc",))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    async with (
        KubeVirtSim(kube_apiserver.config) as sim,
        ActionServer(sim.client, sim.clock, "127.0.0.1", 0, tls) as server,
    ):
        service = build_object(
            SERVICE,
            NAME,
            kube_namespace,
            spec={"type": "ExternalName", "externalName": "localhost"},
        )
        await kube_client.create(SERVICE, service)
        authority = (tmp_path / "ca.crt").read_bytes()
        kinds = (API_SERVICE, WEBHOOKS)
        made = build_registration(kube_namespace, server.port, authority)
        for kind, manifest in zip(kinds, made, strict=True):
            await kube_client.apply(kind, manifest, field_manager="test")
        try:
            yield sim
        finally:
            for kind, manifest in zip(kinds, made, strict=True):
                key = Key("", manifest["metadata"]["name"])
                uid = (await kube_client.get(kind, key))["metadata"]["uid"]
                await kube_client.delete(kind, key, uid=uid)


async def wait_served(client: Client) -> None:
    """Wait until the API server has found out that the group is served."""
    async with asyncio.timeout(30):
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
    await real_sim.settled()
    first = await look(real_sim, kube_namespace)
    disk = await client.get(DATA_VOLUME, Key(kube_namespace, "web-root"))
    assert first.ready and DataVolumeView.parse(disk).succeeded

    await wait_served(client)
    restart = f"{GROUP_PATH}/namespaces/{kube_namespace}/virtualmachines/web/restart"
    await client.raw("PUT", restart, {})
    await real_sim.settled()
    second = await look(real_sim, kube_namespace)
    assert second.ready and second.uid != first.uid
    with pytest.raises(ApiError, match="only gracePeriod=0 is supported"):
        await client.raw("PUT", restart, {"gracePeriodSeconds": 7})

    [pod] = (await client.list(POD, kube_namespace)).items
    metadata = {"name": pod["metadata"]["name"], "namespace": kube_namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    with pytest.raises(TooManyRequests, match="Eviction triggered evacuation of VMI"):
        await client.raw("POST", POD.path(kube_namespace, metadata["name"], "eviction"), eviction)
    await real_sim.settled()
    third = await look(real_sim, kube_namespace)
    assert third.uid == second.uid and third.node_name != second.node_name

    vm = await client.get(VIRTUAL_MACHINE, Key(kube_namespace, "web"))
    await client.delete(VIRTUAL_MACHINE, Key(kube_namespace, "web"), uid=vm["metadata"]["uid"])
    await real_sim.settled()
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
