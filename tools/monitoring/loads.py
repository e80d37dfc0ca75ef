"""Loads of the operators for recordings: objects that come, change and go.

Nothing runs on nodes here. Claims are bound, JVMs respond and virtual machines run in simulations;
consumers are real processes that a real broker serves.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any, Final

from aiohttp import web

from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.timing import Timing
from lab.sweep.external_system import Request
from lab.sweep.fake_cluster import FakeCluster
from lab.sweep.recorder import NamespaceRecord
from lab.sweep.workload import Workload, load_workloads
from libs.common.crd import CustomResource, build_crd
from libs.common.errors import AlreadyExists, NotFound, SlipwayError
from libs.common.kinds import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.testing.ports import find_free_port
from libs.contracts.compute import INSTANCE, OPERATION
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER
from operators.clusters.naming import ADDON_LABEL
from operators.clusters.samples import build_cluster
from operators.clusters.samples import build_network as build_cluster_network
from operators.compute.api import RESOURCES as COMPUTE_RESOURCES
from operators.compute.api.size import INSTANCE_SIZE
from operators.compute.samples import build_instance, build_operation, build_size
from operators.ipam.api import RESOURCES as IPAM_RESOURCES
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.samples import build_claim, build_pool
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.samples import build_config_map, build_exporter, build_pod
from operators.network.api.v1alpha1 import FIREWALL, NETWORK
from operators.network.samples import build_firewall, build_network, build_rule
from operators.network.samples import build_instance as build_guest
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.app.harness import Peer
from operators.pulsarconsumer.fake_nodes import run_fake_nodes
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.testing.broker import Broker
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tools.monitoring.stage import NAMESPACE, Stage
from tools.pulsar.fetch import ensure_pulsar

_NUMBERS: Final = (2, 6, 3, 9, 1, 5, 12, 4)
"""Numbers of objects, one after another."""
_TURN_SECONDS: Final = 8.0
_TEND_SECONDS: Final = 0.3
_OPERATIONS: Final = ("Reboot", "Rebuild", "Migrate", "Stop", "Start")
_MESSAGES: Final = 800
_PAUSE_SECONDS: Final = 0.05
_ADDON: Final = "addon"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of an operator.

    Attributes:
        crds: Kinds that the API server must serve.
        run: Makes the load until it is cancelled.
        settings: Settings of the operator.
        serve: Serves the external systems that the operator finds through its settings, and gives
            those settings.
    """

    crds: Sequence[type[CustomResource] | Manifest]
    run: Callable[[Stage], Awaitable[None]]
    settings: Mapping[str, str] = field(default_factory=dict)
    serve: Callable[[Stage], AbstractAsyncContextManager[Mapping[str, str]]] = (
        lambda _: nullcontext({})
    )


async def _keep(stage: Stage, kind: Kind, objects: Sequence[Manifest]) -> None:
    """Create the objects that do not exist, and delete the others of their kind."""
    wanted = {key_of(one): one for one in objects}
    found = {key_of(one): one for one in (await stage.client.list(kind, NAMESPACE)).items}
    for key, one in wanted.items():
        if key not in found:
            with suppress(AlreadyExists):
                await stage.client.create(kind, one)
    for key, one in found.items():
        if key not in wanted:
            with suppress(NotFound):
                await stage.client.delete(kind, key, uid=uid_of(one))


async def _open(stage: Stage, policy: str) -> None:
    """Let everything through a policy, as somebody in trouble may do."""
    with suppress(NotFound):
        change: Manifest = {"spec": {"ingress": [{}]}}
        await stage.client.patch(NETWORK_POLICY, Key(NAMESPACE, policy), change)


async def _tend(stage: Stage, operator: str) -> None:
    """Do what the other parts of a cluster do for an operator, until it is cancelled."""
    workload = _workload(operator)
    kinds = {*workload.children, *(each.kind for each in workload.components)}
    while True:
        record = NamespaceRecord()
        for kind in kinds:
            for one in (await stage.client.list(kind, NAMESPACE)).items:
                record.note("ADDED", kind, one)
        for component in workload.components:
            for one in record.list(component.kind):
                if component.needs(one, record):
                    with suppress(SlipwayError):
                        await component.act(stage.client, one, record)
        await asyncio.sleep(_TEND_SECONDS)


async def _run_volumes(stage: Stage) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_tend(stage, "volumes"))
        for number in cycle(_NUMBERS):
            volumes = [
                build_object(DEMO_VOLUME, f"data-{index}", NAMESPACE, spec={"size": 1})
                for index in range(number)
            ]
            await _keep(stage, DEMO_VOLUME, [_build_broken_volume(), *volumes])
            await _grow(stage, number)
            await asyncio.sleep(_TURN_SECONDS)


def _build_broken_volume() -> Manifest:
    """Build a volume that stays not ready, because its source does not exist."""
    source = {"volume": "missing"}
    return build_object(DEMO_VOLUME, "restored", NAMESPACE, spec={"size": 1, "source": source})


async def _grow(stage: Stage, number: int) -> None:
    key = Key(NAMESPACE, "data-0")
    with suppress(NotFound):
        await stage.client.patch(DEMO_VOLUME, key, {"spec": {"size": 1 + number}})


async def _run_exporters(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAP, build_config_map())
    await stage.client.create(PROMETHEUS_JMX_EXPORTER, build_exporter())
    missing = build_exporter("billing", config={"configMapName": "missing"})
    missing["spec"]["labelSelector"] = {"app": "billing"}
    await stage.client.create(PROMETHEUS_JMX_EXPORTER, missing)
    async with asyncio.TaskGroup() as group:
        group.create_task(_tend(stage, "jmxexporter"))
        for turn, number in enumerate(cycle(_NUMBERS)):
            pods = [build_pod(f"shop-{index}", nodeName="node-1") for index in range(number)]
            await _keep(stage, POD, pods)
            change = {"spec": {"port": 9400 + turn // len(_NUMBERS) % 2}}
            await stage.client.patch(PROMETHEUS_JMX_EXPORTER, Key(NAMESPACE, "jmx"), change)
            await asyncio.sleep(_TURN_SECONDS)


async def _run_addresses(stage: Stage) -> None:
    for name, addresses in (("public", "203.0.113.0/29"), ("internal", "198.51.100.0/28")):
        await stage.client.create(IP_POOL, build_pool(name, addresses=[addresses]))
    for number in cycle(_NUMBERS):
        public = [build_claim(f"web-{index}") for index in range(number)]
        internal = [
            build_claim(f"api-{index}", poolRef={"name": "internal"})
            for index in range(max(_NUMBERS) - number)
        ]
        await _keep(stage, IP_CLAIM, [*public, *internal])
        await asyncio.sleep(_TURN_SECONDS)


async def _run_machines(stage: Stage) -> None:
    async with KubeVirtSim(stage.plane.config, timing=Timing()):
        await stage.client.create(INSTANCE_SIZE, build_size())
        names = [f"web-{index}" for index in range(4)]
        broken = build_instance("broken", size="missing")
        await _keep(stage, INSTANCE, [broken, *map(build_instance, names)])
        for number in count():
            # One type after another, so that a machine that was stopped is started again.
            type_ = _OPERATIONS[number // len(names) % len(_OPERATIONS)]
            operation = build_operation(type_, f"op-{number}", names[number % len(names)])
            await stage.client.create(OPERATION, operation)
            await asyncio.sleep(_TURN_SECONDS)


async def _run_firewalls(stage: Stage) -> None:
    """Let Instances come and go, change rules, and open policies that the operator keeps."""
    names = ("web", "db")
    await stage.client.create(NETWORK, build_network())
    for name in names:
        await stage.client.create(FIREWALL, build_firewall(name, build_rule("https", ports=[443])))
    missing = build_firewall("orphan", networkRef={"name": "missing"})
    await stage.client.create(FIREWALL, missing)
    for turn, number in enumerate(cycle(_NUMBERS)):
        guests = [
            build_guest(f"vm-{index}", firewall=names[index % len(names)])
            for index in range(number)
        ]
        await _keep(stage, INSTANCE, guests)
        rules = [build_rule("https", ports=[443 + turn])]
        await stage.client.patch(FIREWALL, Key(NAMESPACE, "web"), {"spec": {"rules": rules}})
        # Later than the other changes, which would write the policy anyway.
        await asyncio.sleep(_TURN_SECONDS / 2)
        if turn % 2:
            await _open(stage, "firewall-db")
        await asyncio.sleep(_TURN_SECONDS / 2)


async def _run_clusters(stage: Stage) -> None:
    """Let a pool grow and shrink, rebuild nodes, and change an addon."""
    await stage.client.create(
        NETWORK, build_cluster_network(cidrs=["10.0.0.0/16"], binding="Passt")
    )
    addon = {"name": "network", "configMapRef": {"name": _ADDON}}
    await _write_addon(stage, 0)
    await stage.client.create(KUBERNETES_CLUSTER, build_cluster("edge", addons=[addon]))
    lost = build_cluster("lost", networkRef={"name": "missing"})
    await stage.client.create(KUBERNETES_CLUSTER, lost)
    async with asyncio.TaskGroup() as group:
        group.create_task(_tend(stage, "clusters"))
        for turn in count():
            await asyncio.sleep(_TURN_SECONDS)
            pool = {"name": "web", "count": 1 + turn % 4, "size": "large"}
            recycle = [{"node": "edge-web-0", "token": f"turn-{turn // 4}"}]
            change = {"spec": {"pools": [pool], "recycle": recycle}}
            await stage.client.patch(KUBERNETES_CLUSTER, Key(NAMESPACE, "edge"), change)
            await _write_addon(stage, turn)


async def _write_addon(stage: Stage, turn: int) -> None:
    content = build_object(CONFIG_MAP, "cni", "kube-system")
    content["data"] = {"turn": str(turn)}
    manifest = build_object(
        CONFIG_MAP, _ADDON, NAMESPACE, metadata={"labels": {ADDON_LABEL: "true"}}
    )
    manifest["data"] = {"cni": json.dumps(content)}
    try:
        await stage.client.create(CONFIG_MAP, manifest)
    except AlreadyExists:
        change = {"data": manifest["data"]}
        await stage.client.patch(CONFIG_MAP, Key(NAMESPACE, _ADDON), change)


@asynccontextmanager
async def _serve_cluster(stage: Stage) -> AsyncIterator[Mapping[str, str]]:
    """Serve a fake API of the cluster that the operator creates."""
    system = FakeCluster(NAMESPACE, stage.client)

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        asked = Request(request.method, request.path, request.query, body, request.headers)
        reply = await system.answer(asked)
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        port = find_free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield {"API_URL": f"http://127.0.0.1:{port}", "API_POLL_SECONDS": "5"}
    finally:
        await runner.cleanup()


async def _run_consumers(stage: Stage) -> None:
    with Broker(ensure_pulsar()) as broker:
        addresses = {"serverAddress": broker.service_url, "adminAddress": broker.admin_url}
        scaling = {
            "maxReplicas": 3,
            "pollSeconds": 2,
            "cooldownSeconds": 10,
            "targets": {"backlogPerReplica": 100},
            "behavior": {"scaleDown": {"stabilizationSeconds": 0}},
        }
        spec: dict[str, Any] = {**addresses, "topic": "orders", "autoscaling": scaling}
        await stage.client.create(PULSAR_CONSUMER, build_manifest(replicas=None, **spec))
        missing = build_manifest("invoices", serverAddress="pulsar://missing.invalid:6650")
        await stage.client.create(PULSAR_CONSUMER, missing)
        async with run_fake_nodes(stage.plane, stage.folder):
            peer = Peer(broker.service_url)
            try:
                await _send(peer)
            finally:
                peer.close()


async def _send(peer: Peer) -> None:
    """Send messages in batches, so that the backlog grows and shrinks."""
    dice = random.Random(0)
    while True:
        for _ in range(dice.randrange(1, 5)):
            batch = [b"message"] * _MESSAGES
            await asyncio.to_thread(peer.send, "orders", batch)
            await asyncio.sleep(_PAUSE_SECONDS)
        await asyncio.sleep(2 * _TURN_SECONDS)


def _workload(operator: str) -> Workload:
    return load_workloads(operator)[0]


LOADS: Final[Mapping[str, Load]] = {
    "clusters": Load(_workload("clusters").crds, _run_clusters, serve=_serve_cluster),
    "compute": Load(COMPUTE_RESOURCES, _run_machines),
    "ipam": Load(IPAM_RESOURCES, _run_addresses),
    "jmxexporter": Load(_workload("jmxexporter").crds, _run_exporters),
    "network": Load(_workload("network").crds, _run_firewalls),
    "pulsarconsumer": Load(
        [build_crd(PulsarConsumer)],
        _run_consumers,
        {"ALLOW_LOOPBACK_BROKERS": "true", "POLL_SECONDS": "5"},
    ),
    "volumes": Load(_workload("volumes").crds, _run_volumes),
}
"""Loads by operator."""
