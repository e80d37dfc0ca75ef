"""Five machines with an address each, while they move and reboot and the operators are killed.

The machines may be simulated; API server, nodes, operators and their deaths are real.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

import pytest

from lab.kubevirt_sim.behavior import SILENT
from libs.common.errors import AlreadyExists, NotFound
from libs.common.kinds import (
    ENDPOINT_SLICE,
    NODE,
    POD,
    SERVICE,
    Key,
    Manifest,
    key_of,
    uid_of,
)
from libs.common.reading import text_at
from libs.contracts.compute import INSTANCE, INSTANCE_SIZE, OPERATION
from libs.contracts.ip_claims import IP_ALLOCATION, IP_CLAIM, IP_POOL, IpClaimView
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE, VmiView
from operators.compute.samples import build_instance, build_operation, build_size
from operators.ipam.samples import build_pool
from tests.e2e.cloud.conftest import KubeVirt
from tests.e2e.cluster import Cluster, Serve, eventually

OPERATORS = ("ipam", "compute")
MACHINES = [f"vm-{number}" for number in range(5)]
ROUNDS = (
    ("Migrate", "Reboot", "Rebuild", "Migrate", "Reboot"),
    ("Reboot", "Rebuild", "Migrate", "Reboot", "Migrate"),
)
"""What is done to each machine, at the same time."""
_KILLS_AFTER: Final = (0, 2, 5)
"""How many operations have ended when the operators are killed."""


@pytest.fixture(scope="module", autouse=True)
def operators(kubevirt: KubeVirt, serve: Serve) -> None:
    """Install the operators once there is a KubeVirt."""
    for operator in OPERATORS:
        # The cluster of the tests has no load balancer.
        serve(operator, **({"settings__announcement": "ExternalIPs"} if operator == "ipam" else {}))


async def test_each_machine_keeps_its_address_through_everything(
    cluster: Cluster, kubevirt: KubeVirt
) -> None:
    namespace = await cluster.make_namespace("cloud")
    pool = f"{namespace}-public"
    with contextlib.suppress(AlreadyExists):
        await cluster.client.create(INSTANCE_SIZE, build_size())
    await cluster.client.create(IP_POOL, build_pool(pool, addresses=["192.0.2.64/29"]))
    for name in MACHINES:
        ports = [{"name": "ssh", "port": 22}]
        public = {"mode": "Auto", "poolName": pool, "ports": ports}
        spec: Manifest = {"image": kubevirt.image, "publicIP": public}
        await cluster.client.create(INSTANCE, build_instance(name, namespace, **spec))
    for name in MACHINES:
        await cluster.wait_ready(INSTANCE, Key(namespace, name))
    before = await list_addresses(cluster, namespace)
    assert len(before) == len(set(before.values())) == len(MACHINES)

    for number, types in enumerate(ROUNDS):
        for name, type_ in zip(MACHINES, types, strict=True):
            operation = build_operation(type_, f"{name}-{number}", name, namespace)
            await cluster.client.create(OPERATION, operation)
    await kill_operators_as_they_work(cluster, namespace)
    for number, name in [(number, name) for number in range(len(ROUNDS)) for name in MACHINES]:
        await cluster.wait_ready(OPERATION, Key(namespace, f"{name}-{number}"))
    if kubevirt.simulated:
        await reboot_on_a_lost_node(cluster, namespace, MACHINES[0])

    await eventually(lambda: all_follow(cluster, namespace), "each address is where its machine is")
    assert await list_addresses(cluster, namespace) == before
    assert await list_entries(cluster, pool) == sorted(before.values())
    for name in MACHINES:
        await cluster.delete(INSTANCE, Key(namespace, name))
    for name in MACHINES:
        await cluster.wait_gone(INSTANCE, Key(namespace, name))

    async def is_full_again() -> bool:
        return not await list_entries(cluster, pool)

    await eventually(is_full_again, "all addresses are given back")
    await cluster.delete(IP_POOL, Key("", pool))
    await cluster.wait_gone(IP_POOL, Key("", pool))


async def reboot_on_a_lost_node(cluster: Cluster, namespace: str, name: str) -> None:
    """Reboot a machine whose node does not answer: it waits for the node, and nothing is forced."""
    key = Key(namespace, name)
    run = VmiView.parse(await cluster.client.get(VIRTUAL_MACHINE_INSTANCE, key))
    await set_silent(cluster, run.node_name, "true")
    try:
        await cluster.client.create(OPERATION, build_operation("Reboot", "lost", name, namespace))

        async def is_asked() -> bool:
            held = await cluster.client.get(VIRTUAL_MACHINE_INSTANCE, key)
            assert uid_of(held) == run.uid
            return bool(held["metadata"].get("deletionTimestamp"))

        await eventually(is_asked, "the run is asked to end, and does not")
        held = await cluster.client.get(OPERATION, Key(namespace, "lost"))
        assert text_at(held, "status", "phase") == "Running"
    finally:
        await set_silent(cluster, run.node_name, None)
    await cluster.wait_ready(OPERATION, Key(namespace, "lost"))


async def set_silent(cluster: Cluster, node: str, silent: str | None) -> None:
    """Make the simulated part of a node stop or continue."""
    await cluster.client.patch(NODE, Key("", node), {"metadata": {"annotations": {SILENT: silent}}})


async def kill_operators_as_they_work(cluster: Cluster, namespace: str) -> None:
    """Kill the operators whenever some more operations have ended, which is not all by then.

    A new process waits for the Lease of the dead one, so one that was killed as soon as it is ready
    would never work.
    """
    for number in _KILLS_AFTER:
        await eventually(partial(have_ended, cluster, namespace, number), f"{number} have ended")
        for operator in OPERATORS:
            pods = await cluster.client.list(
                POD, label_selector=f"app.kubernetes.io/name={operator}"
            )
            assert pods.items, f"{operator} has a pod"
            for pod in pods.items:
                with contextlib.suppress(NotFound):  # One that was ending has ended.
                    await cluster.delete(POD, key_of(pod), grace_seconds=0)


async def have_ended(cluster: Cluster, namespace: str, number: int) -> bool:
    """Return whether so many operations have ended."""
    operations = (await cluster.client.list(OPERATION, namespace)).items
    return sum(text_at(each, "status", "phase") == "Succeeded" for each in operations) >= number


async def list_claims(cluster: Cluster, namespace: str) -> dict[str, IpClaimView]:
    """List the claims by the name of their machine."""
    claims = (await cluster.client.list(IP_CLAIM, namespace)).items
    views = [IpClaimView.parse(each) for each in claims]
    return {view.target.rpartition("/")[2]: view for view in views}


async def list_addresses(cluster: Cluster, namespace: str) -> dict[str, str]:
    """List the addresses by the name of their machine."""
    claims = await list_claims(cluster, namespace)
    return {name: claim.address for name, claim in sorted(claims.items())}


async def list_entries(cluster: Cluster, pool: str) -> list[str]:
    """List the addresses of a pool that the ledger has."""
    entries = (await cluster.client.list(IP_ALLOCATION)).items
    mine = [each for each in entries if text_at(each, "spec", "poolRef", "name") == pool]
    return sorted(text_at(each, "spec", "address") for each in mine)


async def all_follow(cluster: Cluster, namespace: str) -> bool:
    """Return whether each address routes to the run that its machine has now.

    The status of a claim is not enough: its Service must have the address, and the EndpointSlice of
    the Service the pod of the run, ready.
    """
    claims = await list_claims(cluster, namespace)
    for name in MACHINES:
        held = await cluster.client.get(VIRTUAL_MACHINE_INSTANCE, Key(namespace, name))
        run, address = VmiView.parse(held), held["status"]["interfaces"][0]["ipAddress"]
        claim = claims[name]
        assert claim.bound, (name, claim.bound_message)
        assert (claim.vmi_uid, claim.node) == (run.uid, run.node_name), name
        service = await cluster.client.get(SERVICE, Key(namespace, f"{name}-public-ip"))
        assert service["spec"].get("externalIPs") == [claim.address], name
        slice_ = await cluster.client.get(ENDPOINT_SLICE, Key(namespace, f"{name}-public-ip-v4"))
        assert [(each["port"], each["protocol"]) for each in slice_["ports"]] == [(22, "TCP")]
        routed = [
            (each["addresses"], each["conditions"].get("ready"), each.get("nodeName"))
            for each in slice_.get("endpoints") or ()
        ]
        assert routed == [([address], True, run.node_name)], (name, routed)
    return True
