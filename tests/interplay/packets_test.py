"""Firewalls stop real packets, as kube-router enforces the policies that the operator writes.

The cluster is a real kube-apiserver with two nodes that no kubelet runs (`lab.py`). On both nodes,
kube-router enforces NetworkPolicies with iptables and ipset. Without the program that
`python -m tools.cluster.binaries kube-router` builds, the tests are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.kinds import (
    NETWORK_POLICY,
    POD,
    Key,
    Kind,
    Manifest,
    build_object,
    uid_of,
)
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL, NETWORK_LABEL
from operators.network.api.v1alpha1 import FIREWALL, NETWORK, Firewall, Network, ProviderNetwork
from operators.network.controller import OPERATOR
from tests.interplay.lab import Lab

_PATIENCE: Final = 240.0
"""Seconds that a change of a policy may take to reach the packets."""
_OPEN: Final = {"name": "open", "protocol": "TCP", "ports": [8080]}


class Users:
    """Create objects in a namespace, and pods both in the API and on a node."""

    def __init__(self, client: Client, namespace: str, lab: Lab) -> None:
        """Keep what it acts on."""
        self.addresses6 = dict[str, str]()
        self._client, self._namespace, self._lab = client, namespace, lab

    async def add(self, kind: Kind, name: str, **spec: Any) -> str:
        """Create an object and return its UID."""
        manifest = build_object(kind, name, self._namespace, spec=spec)
        return uid_of(await self._client.create(kind, manifest))

    async def add_instance(self, name: str, **spec: Any) -> str:
        """Create an Instance, which another test may have a CRD with all rules for."""
        image = {"url": "https://images.example.com/linux.img"}
        return await self.add(INSTANCE, name, size="small", image=image, **spec)

    async def add_pod(
        self, name: str, uid: str = "", network: str = "", node: str = "node-1"
    ) -> str:
        """Run a pod, labelled like the pod of an Instance if it has a UID; return its address."""
        labels = {INSTANCE_UID_LABEL: uid} if uid else {}
        if network:
            labels[NETWORK_LABEL] = network
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        pod = build_object(POD, name, self._namespace, metadata={"labels": labels}, spec=spec)
        await self._client.create(POD, pod)
        addresses = await asyncio.to_thread(self._lab.add_pod, f"{self._namespace}/{name}", node)
        ips = [{"ip": address} for address in addresses]
        host = self._lab.address_of(node)
        status = {"phase": "Running", "hostIP": host, "podIP": addresses[0], "podIPs": ips}
        key = Key(self._namespace, name)
        await self._client.patch(POD, key, {"status": status}, subresource="status")
        self.addresses6[name] = addresses[1]
        return addresses[0]

    async def patch(self, kind: Kind, name: str, patch: Manifest) -> None:
        """Merge a patch into an object."""
        await self._client.patch(kind, Key(self._namespace, name), patch)

    async def becomes(
        self, reachable: bool, address: str, port: int = 8080, *, client: str = "client"
    ) -> None:
        """Wait until a pod can connect, or cannot."""
        async with asyncio.timeout(_PATIENCE):
            while await self.reaches(address, port, client=client) is not reachable:
                pass

    async def reaches(self, address: str, port: int = 8080, *, client: str = "client") -> bool:
        """Return whether a pod can connect now."""
        name = f"{self._namespace}/{client}"
        return bool(await asyncio.to_thread(self._lab.ask, name, address, port))

    async def pings(self, address: str, *, client: str = "client") -> bool:
        """Return whether an address answers an echo request of a pod."""
        return await asyncio.to_thread(self._lab.pings, f"{self._namespace}/{client}", address)


@pytest.fixture
async def users(
    plugin: Lab, kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> AsyncIterator[Users]:
    """Run the network operator, and pods that connect; a policy written by hand is enforced."""
    crds = (Network, Firewall, ProviderNetwork, build_loose_crd(INSTANCE, None, ("status",)))
    await serve(kube_client, *crds)
    await plugin.register(kube_client)
    users = Users(kube_client, kube_namespace, plugin)
    await users.add_pod("client")
    await users.add_pod("far", node="node-2")
    # What stops this packet owes nothing to the operator: without it no test here means anything.
    probe = await users.add_pod("probe")
    await users.becomes(True, probe)
    spec = {"podSelector": {"matchLabels": {}}, "policyTypes": ["Ingress"]}
    manifest = build_object(NETWORK_POLICY, "by-hand", kube_namespace, spec=spec)
    held = await kube_client.create(NETWORK_POLICY, manifest)
    await users.becomes(False, probe)
    await kube_client.delete(NETWORK_POLICY, Key(kube_namespace, "by-hand"), uid=uid_of(held))
    await users.becomes(True, probe)
    async with OperatorHarness(
        OPERATOR,
        kube_apiserver.config,
        watch_namespaces=(kube_namespace,),
        ip_families="IPv4,IPv6",
    ):
        yield users


@pytest.mark.apiserver
async def test_packets_pass_as_the_rules_of_a_firewall_say(users: Users) -> None:
    """From the same node and from another one."""
    await users.add(NETWORK, "lan", cidrs=["10.10.0.0/16"])
    await users.add(FIREWALL, "web", networkRef={"name": "lan"}, rules=[_OPEN])
    refs = {"networkRef": {"name": "lan"}, "firewallRef": {"name": "web"}}
    uid = await users.add_instance("vm", **refs)
    address = await users.add_pod("vm", uid, "lan")

    for client in ("client", "far"):
        await users.becomes(False, address, 9090, client=client)
        await users.becomes(True, address, 8080, client=client)
    await users.patch(FIREWALL, "web", {"spec": {"rules": [{**_OPEN, "action": "Deny"}]}})
    for client in ("client", "far"):
        await users.becomes(False, address, 8080, client=client)


@pytest.mark.apiserver
async def test_rules_of_a_firewall_hold_for_ipv6(users: Users) -> None:
    await users.add(NETWORK, "lan", cidrs=["10.10.0.0/16", "fd10:10::/64"])
    by_address = {**_OPEN, "name": "far", "ports": [9090], "cidrs": ["fd99:2::/64"]}
    await users.add(FIREWALL, "web", networkRef={"name": "lan"}, rules=[_OPEN, by_address])
    stranger = await users.add_pod("stranger")
    assert await users.reaches(stranger)
    uid = await users.add_instance("vm", networkRef={"name": "lan"}, firewallRef={"name": "web"})
    await users.add_pod("vm", uid, "lan")
    address = users.addresses6["vm"]

    await users.becomes(False, address, 9090, client="client")
    await users.becomes(True, address, 9090, client="far")
    for client in ("client", "far"):
        await users.becomes(True, address, 8080, client=client)
    assert await users.reaches(users.addresses6["stranger"], 9090)


@pytest.mark.apiserver
async def test_rule_by_address_opens_to_the_pods_of_one_node(users: Users) -> None:
    await users.add(NETWORK, "lan", cidrs=["10.10.0.0/16"])
    rule = {**_OPEN, "cidrs": ["10.99.2.0/24"]}
    await users.add(FIREWALL, "web", networkRef={"name": "lan"}, rules=[rule])
    refs = {"networkRef": {"name": "lan"}, "firewallRef": {"name": "web"}}
    uid = await users.add_instance("vm", **refs)
    address = await users.add_pod("vm", uid, "lan")

    await users.becomes(False, address, client="client")
    await users.becomes(True, address, client="far")


@pytest.mark.apiserver
async def test_closed_machine_answers_no_ping_and_an_open_one_does(users: Users) -> None:
    """A NetworkPolicy cannot name ICMP; what is closed is closed to it as well."""
    await users.add(NETWORK, "lan", cidrs=["10.10.0.0/16"])
    await users.add(FIREWALL, "web", networkRef={"name": "lan"}, rules=[_OPEN])
    refs = {"networkRef": {"name": "lan"}, "firewallRef": {"name": "web"}}
    uid = await users.add_instance("vm", **refs)
    address = await users.add_pod("vm", uid, "lan")
    await users.becomes(False, address, 9090)
    await users.becomes(True, address, 8080)

    assert not await users.pings(address)
    assert not await users.pings(address, client="far")
    everything = {"name": "all", "protocol": "ALL"}
    await users.patch(FIREWALL, "web", {"spec": {"rules": [everything]}})
    await users.becomes(True, address, 9090)
    assert await users.pings(address)
    assert await users.pings(address, client="far")


@pytest.mark.apiserver
async def test_network_closes_its_own_machines_and_no_others(users: Users) -> None:
    await users.add(NETWORK, "lan", cidrs=["10.10.0.0/16"], isolation="Network")
    stranger = await users.add_pod("stranger", "a-uid")
    fresh = await users.add_pod("fresh", "b-uid", "lan")

    await users.becomes(False, fresh)
    await users.becomes(False, fresh, client="far")
    assert await users.reaches(stranger)


@pytest.mark.apiserver
async def test_machine_without_network_stays_closed_while_it_changes_its_firewall(
    users: Users,
) -> None:
    await users.add(FIREWALL, "web", networkRef={"name": "lan"}, rules=[_OPEN])
    uid = await users.add_instance("vm", firewallRef={"name": "web"})
    address = await users.add_pod("vm", uid)
    await users.becomes(False, address, 9090)
    await users.becomes(True, address, 8080)

    await users.patch(INSTANCE, "vm", {"spec": {"firewallRef": {"name": "absent"}}})
    await users.becomes(False, address, 8080)
    assert not await users.reaches(address, 9090)
    other = {**_OPEN, "ports": [9090]}
    await users.add(FIREWALL, "absent", networkRef={"name": "lan"}, rules=[other])
    await users.becomes(True, address, 9090)
    assert not await users.reaches(address, 8080)
