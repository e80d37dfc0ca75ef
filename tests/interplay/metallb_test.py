"""Addresses reach machines from outside of the cluster: MetalLB and kube-proxy, with real packets.

The cluster is a real kube-apiserver with two nodes (`lab.py`). On each node run kube-proxy and the
speaker of MetalLB, which answers ARP; its controller runs beside them. KubeVirt does not take part:
the test writes the runs of the machine and their launcher pods. Without the programs that
`python -m tools.cluster.binaries metallb-controller metallb-speaker` builds, tests are skipped.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
import yaml

from lab.sweep.workload import build_open_crd
from lab.sweep.workloads.ipam import build_launcher
from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.errors import AlreadyExists
from libs.common.kinds import (
    ENDPOINT_SLICE,
    NAMESPACE,
    POD,
    SERVICE,
    Key,
    Kind,
    Manifest,
    build_object,
    uid_of,
)
from libs.common.labels import SERVICE_NAME
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from operators.ipam.api import RESOURCES
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.ipam.api.v1alpha1.pools import IP_POOL
from operators.ipam.controller import OPERATOR
from tests.interplay.lab import UPLINK, Lab
from tools.cluster.binaries import find_tool
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress
from tools.cluster.versions import METALLB_MODULE

_PATIENCE: Final = 240.0
_SYSTEM: Final = "metallb-system"
_CLASS: Final = "slipway.dev/ipam"
_SPEAKERS: Final = {_SYSTEM: (), "metallb-ipam": (f"--lb-class={_CLASS}",)}
"""Flags of the speakers in each namespace. In one namespace, speakers of two classes delete each
other's ServiceL2Status without end."""
_numbers: Final = itertools.count(200, 10)
_ADDRESSES: Final = f"{UPLINK}.200-{UPLINK}.250"
_ADDRESS_POOL: Final = Kind("metallb.io", "v1beta1", "IPAddressPool", "ipaddresspools")
_ADVERTISEMENT: Final = Kind("metallb.io", "v1beta1", "L2Advertisement", "l2advertisements")
_WEB: Final = {"kind": "Instance", "name": "web"}


@pytest.fixture(scope="module")
def lab(kube_apiserver: ControlPlane, tmp_path_factory: Any) -> Iterator[Lab]:
    """Make two nodes with kube-proxy, a speaker, and a second speaker for Services of our class."""
    programs = [find_tool(f"metallb-{name}") for name in ("speaker", "controller")]
    if None in programs:
        pytest.skip(
            "MetalLB is not built; run `python -m tools.cluster.binaries metallb-controller"
            " metallb-speaker`"
        )
    if shutil.which("iptables") is None or os.geteuid() != 0:
        pytest.skip("needs root and iptables")
    folder = tmp_path_factory.mktemp("metallb")
    lab = Lab(kube_apiserver, 2)
    try:
        lab.start()
        kubeconfig = kube_apiserver.write_kubeconfig(folder / "kubeconfig")
        environment = {"KUBECONFIG": str(kubeconfig)}
        lab.prepare_proxies(kubeconfig, folder)
        for node in lab.nodes:
            for number, (system, flags) in enumerate(_SPEAKERS.items()):
                speaker = [str(programs[0]), f"--node-name={node}", f"--port={7472 + number}"]
                speaker += [f"--namespace={system}", f"--pod-name=speaker-{node}", *flags]
                log = folder / f"{node}-{system}.log"
                lab.prepare(node, [*speaker, "--host=127.0.0.1"], log, environment)
        controller = [str(programs[1]), f"--namespace={_SYSTEM}", "--webhook-mode=disabled"]
        controller += ["--port=7480", "--disable-cert-rotation"]
        log = folder / "controller.log"
        lab.prepare("node-1", controller, log, environment)
        yield lab
    finally:
        lab.stop()


async def create(client: Client, kind: Kind, manifest: Manifest) -> None:
    with suppress(AlreadyExists):
        await client.create(kind, manifest)


async def install(client: Client, lab: Lab) -> None:
    """Install the kinds of MetalLB, an address pool, and the pods of its speakers."""
    progress = open_progress("metallb")
    folder = ensure_go(progress).module_directory(METALLB_MODULE) / "config" / "crd" / "bases"
    crds = [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]
    kinds = (INSTANCE,)
    machines = build_open_crd(VIRTUAL_MACHINE_INSTANCE, subresources={})
    await serve(client, *RESOURCES, *crds, *map(build_open_crd, kinds), machines)
    pool = {"addresses": [_ADDRESSES], "autoAssign": False}
    for system in _SPEAKERS:
        await create(client, NAMESPACE, build_object(NAMESPACE, system))
        for node in lab.nodes:
            spec = {"nodeName": node, "containers": [{"name": "speaker", "image": "none"}]}
            await create(client, POD, build_object(POD, f"speaker-{node}", system, spec=spec))
        await create(client, _ADDRESS_POOL, build_object(_ADDRESS_POOL, "lab", system, spec=pool))
        advertisement = build_object(_ADVERTISEMENT, "lab", system, spec={})
        await create(client, _ADVERTISEMENT, advertisement)
    await lab.register(client)


class Machine:
    """A machine without KubeVirt: its Instance, its run and the pods of the run."""

    def __init__(self, client: Client, namespace: str, lab: Lab) -> None:
        """Keep what it acts on."""
        self._client, self._namespace, self._lab = client, namespace, lab
        self._pods: dict[str, str] = {}

    async def start(self) -> None:
        """Create the Instance and its run, in a pod of the first node."""
        spec = {"size": "small", "image": {"url": "https://images.example.com/linux.img"}}
        instance = build_object(INSTANCE, "web", self._namespace, spec=spec)
        uid = uid_of(await self._client.create(INSTANCE, instance))
        metadata = {"labels": {INSTANCE_UID_LABEL: uid}}
        run = build_object(VIRTUAL_MACHINE_INSTANCE, "web", self._namespace, metadata=metadata)
        self._run = await self._client.create(VIRTUAL_MACHINE_INSTANCE, run)
        await self.move("node-1")

    async def move(self, node: str) -> None:
        """Have the run be in a new pod of a node, as after a migration."""
        name = f"launcher-{node}"
        launcher = build_launcher(self._run, name, node)
        metadata = {**launcher["metadata"], "namespace": self._namespace}
        pod = build_object(POD, name, self._namespace, metadata=metadata, spec=launcher["spec"])
        held = await self._client.create(POD, pod)
        four, _ = await asyncio.to_thread(self._lab.add_pod, f"{self._namespace}/{name}", node)
        status = {"phase": "Running", "podIP": four, "podIPs": [{"ip": four}]}
        key = Key(self._namespace, name)
        await self._client.patch(POD, key, {"status": status}, subresource="status")
        self._pods[uid_of(held)] = node
        seen = {"phase": "Running", "nodeName": node, "activePods": self._pods}
        await self._client.patch(
            VIRTUAL_MACHINE_INSTANCE, Key(self._namespace, "web"), {"status": seen}
        )


@pytest.fixture
async def client(lab: Lab, kube_client: Client) -> Client:
    """Install MetalLB."""
    await install(kube_client, lab)
    return kube_client


@pytest.fixture
async def harness(
    client: Client, kube_apiserver: ControlPlane, kube_namespace: str
) -> AsyncIterator[OperatorHarness]:
    """Run ipam with a pool of the addresses that MetalLB announces."""
    realm, first = kube_namespace.replace("-", ""), next(_numbers)
    addresses = [f"{UPLINK}.{first}-{UPLINK}.{first + 9}"]
    spec = {"family": "IPv4", "addresses": addresses, "realm": realm}
    await client.create(IP_POOL, build_object(IP_POOL, kube_namespace, spec=spec))
    async with OperatorHarness(
        OPERATOR,
        kube_apiserver.config,
        watch_namespaces=(kube_namespace,),
        load_balancer=True,
        default_pool=kube_namespace,
    ) as harness:
        yield harness


async def until_answered(lab: Lab, address: str, port: int, by: str) -> str:
    """Connect from outside until a pod answers; return what it says of the client."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            answer = await asyncio.to_thread(lab.ask, "", address, port)
            if answer.startswith(by):
                return answer
            await asyncio.sleep(0.2)


async def claim_address(client: Client, namespace: str, **spec: Any) -> None:
    spec = {"poolRef": {"name": namespace}, **spec}
    await client.create(IP_CLAIM, build_object(IP_CLAIM, "web", namespace, spec=spec))


async def until_bound(client: Client, namespace: str) -> str:
    """Wait until the claim is bound and announced; return its address."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            claim = await client.get(IP_CLAIM, Key(namespace, "web"))
            found = [find_condition(claim, each) for each in ("Bound", "Announced")]
            if all(each is not None and each["status"] == "True" for each in found):
                return str(claim["status"]["address"])
            await asyncio.sleep(0.2)


@pytest.mark.apiserver
async def test_packets_from_outside_reach_a_machine_and_follow_it_to_another_node(
    lab: Lab, client: Client, kube_namespace: str, harness: OperatorHarness
) -> None:
    machine = Machine(client, kube_namespace, lab)
    await machine.start()
    ports = [{"name": "web", "port": 80, "targetPort": 8080}]
    await claim_address(client, kube_namespace, target=_WEB, ports=ports)
    address = await until_bound(client, kube_namespace)

    answer = await until_answered(lab, address, 80, f"{kube_namespace}/launcher-node-1")
    assert answer.endswith(f" {UPLINK}.100"), "the guest sees the address of its client"
    assert not await asyncio.to_thread(lab.ask, "", address, 9090), "only the ports of the claim"

    await machine.move("node-2")
    await until_answered(lab, address, 80, f"{kube_namespace}/launcher-node-2")


@pytest.mark.apiserver
async def test_address_that_metallb_may_not_announce_is_not_bound(
    client: Client, kube_namespace: str, lab: Lab, harness: OperatorHarness
) -> None:
    outside = {"family": "IPv4", "addresses": ["203.0.113.9"], "realm": "outside"}
    name = f"{kube_namespace}-x"
    await client.create(IP_POOL, build_object(IP_POOL, name, spec=outside))
    await Machine(client, kube_namespace, lab).start()
    spec = {"target": _WEB, "ports": [{"name": "web", "port": 80}], "poolRef": {"name": name}}
    await claim_address(client, kube_namespace, **spec)

    async with asyncio.timeout(_PATIENCE):
        while True:
            claim = await client.get(IP_CLAIM, Key(kube_namespace, "web"))
            bound = find_condition(claim, "Bound") or {}
            if bound.get("reason") == "Refused":
                break
            await asyncio.sleep(0.2)
    assert bound["status"] == "False"
    assert "203.0.113.9" in bound["message"]


@pytest.mark.apiserver
async def test_speaker_of_our_class_announces_the_address_that_ipam_wrote(
    lab: Lab, client: Client, kube_namespace: str, harness: OperatorHarness
) -> None:
    """The controller of MetalLB does not serve the class, and the other speaker is silent."""
    pod = f"{kube_namespace}/shop"
    four, _ = await asyncio.to_thread(lab.add_pod, pod, "node-2")
    ports = [{"name": "web", "port": 80, "targetPort": 8080}]
    spec = {"type": "LoadBalancer", "loadBalancerClass": _CLASS, "ports": ports}
    await client.create(SERVICE, build_object(SERVICE, "shop", kube_namespace, spec=spec))
    slice_ = build_object(
        ENDPOINT_SLICE,
        "shop",
        kube_namespace,
        metadata={"labels": {SERVICE_NAME: "shop"}},
        addressType="IPv4",
        endpoints=[{"addresses": [four], "conditions": {"ready": True}, "nodeName": "node-2"}],
        ports=[{"name": "web", "protocol": "TCP", "port": 8080}],
    )
    await client.create(ENDPOINT_SLICE, slice_)

    async with asyncio.timeout(_PATIENCE):
        while True:
            service = await client.get(SERVICE, Key(kube_namespace, "shop"))
            ingress = service["status"]["loadBalancer"].get("ingress")
            if ingress:
                break
            await asyncio.sleep(0.2)
    answer = await until_answered(lab, ingress[0]["ip"], 80, pod)
    assert answer
