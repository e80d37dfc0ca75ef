"""Users of a cloud: addresses, networks, machines, and clusters of machines."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from lab.kubevirt_sim.deployment import GUEST_PORT, service_name
from libs.common.conditions import find_condition
from libs.common.kinds import (
    ENDPOINT_SLICE,
    NETWORK_POLICY,
    POD,
    PVC,
    SECRET,
    SERVICE,
    Kind,
    Manifest,
    build_object,
    uid_of,
)
from libs.common.reading import text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import INSTANCE, INSTANCE_SIZE
from libs.contracts.ip_claims import IP_ALLOCATION, IP_CLAIM, IP_POOL
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from libs.contracts.network import FIREWALL, NETWORK
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import KUBERNETES_CLUSTER
from operators.compute.samples import IMAGE
from tests.e2e.cluster import build_busybox, eventually
from tests.e2e.nightly.upgrade.policies import PolicyWatch
from tests.e2e.nightly.upgrade.users import FIRST, Place, Users, build_client


class IpamUsers(Users):
    """An address of a Service, and a client that connects to it every second."""

    own_kinds = (IP_CLAIM, IP_POOL)
    kinds = (IP_CLAIM, SERVICE, ENDPOINT_SLICE, POD)
    # The cluster of the tests has no load balancer.
    values = {"settings__announcement": "ExternalIPs"}

    def build(self, name: str, **spec: object) -> tuple[Kind, Manifest]:
        pool = {"name": self.place.namespace}
        return IP_CLAIM, build_object(IP_CLAIM, name, spec={"poolRef": pool, **spec})

    async def create(self) -> None:
        addresses = {"family": "IPv4", "addresses": ["203.0.113.0/24"]}
        await self.place.create(
            IP_POOL, build_object(IP_POOL, self.place.namespace, spec=addresses)
        )
        labels = {"app": "web"}
        spec = build_busybox("httpd", "-f", "-p", "8080", "-h", "/")
        server = build_object(POD, "web", metadata={"labels": labels}, spec=spec)
        await self.place.create(POD, server)
        ports = [{"name": "http", "port": 80, "targetPort": 8080}]
        service = build_object(SERVICE, "web", spec={"selector": labels, "ports": ports})
        await self.place.create(SERVICE, service)
        target = {"kind": "Service", "name": "web"}
        await self.place.create(*self.build(FIRST, target=target))
        await self.wait_ready()
        held = await self.place.cluster.client.get(IP_CLAIM, self.place.key(FIRST))
        client = build_client("client", held["status"]["address"], 80, "/etc/hosts", "200 OK")
        await self.place.create(POD, client)
        await self.place.wait_running("client")

    async def wait_ready(self) -> None:
        await self.place.wait_running("web")
        for condition in ("Ready", "Bound"):
            await self.place.cluster.wait_ready(IP_CLAIM, self.place.key(FIRST), condition)

    async def check(self) -> None:
        await self.place.check_client("client")

    def show(self, kind: Kind, manifest: Manifest) -> object:
        if kind is IP_CLAIM:
            return text_at(manifest, "status", "address")
        return super().show(kind, manifest)

    async def snapshot(self) -> dict[str, Any]:
        entries = (await self.place.cluster.client.list(IP_ALLOCATION)).items
        ledger = {
            f"IPAllocation/{text_at(each, 'spec', 'address')}": (
                uid_of(each),
                text_at(each, "spec", "claimRef", "name"),
            )
            for each in entries
            if text_at(each, "spec", "poolRef", "name") == self.place.namespace
        }
        return {**ledger, **await super().snapshot()}


class NetworkUsers(Users):
    """A network, and a firewall that opens one port."""

    own_kinds = (FIREWALL, NETWORK)
    kinds = (NETWORK, FIREWALL, NETWORK_POLICY)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._policies = PolicyWatch(place)

    def build(self, name: str) -> tuple[Kind, Manifest]:
        rule = {"name": "ssh", "protocol": "TCP", "ports": [22], "cidrs": ["192.0.2.0/24"]}
        spec = {"networkRef": {"name": "lan"}, "rules": [rule]}
        return FIREWALL, build_object(FIREWALL, name, spec=spec)

    async def create(self) -> None:
        lan = build_object(NETWORK, "lan", spec={"cidrs": ["10.10.0.0/16"]})
        await self.place.create(NETWORK, lan)
        await self.place.create(*self.build(FIRST))

    async def wait_ready(self) -> None:
        await self.place.cluster.wait_ready(NETWORK, self.place.key("lan"))
        await self.place.cluster.wait_ready(FIREWALL, self.place.key(FIRST))

    async def check(self) -> None:
        await self._policies.start()
        self._policies.check()

    async def close(self) -> None:
        await self._policies.close()
        await super().close()


class ComputeUsers(Users):
    """A machine of the network with a firewall and a public address."""

    own_kinds = (INSTANCE, INSTANCE_SIZE)
    kinds = (INSTANCE, VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE, DATA_VOLUME, PVC, POD, IP_CLAIM)

    def build(self, name: str, **spec: object) -> tuple[Kind, Manifest]:
        size = {"size": self.place.namespace, "image": dict(IMAGE)}
        return INSTANCE, build_object(INSTANCE, name, spec={**size, **spec})

    async def create(self) -> None:
        size = {"cpus": 1, "memory": "1Gi", "disk": "1Gi"}
        sizes = build_object(INSTANCE_SIZE, self.place.namespace, spec=size)
        await self.place.create(INSTANCE_SIZE, sizes)
        await self.place.create(
            *self.build(
                FIRST,
                networkRef={"name": "lan"},
                firewallRef={"name": FIRST},
                publicIP={"mode": "Claim", "claimName": "machine"},
            )
        )
        claim = {
            "poolRef": {"name": self.place.namespace},
            "target": {"kind": "Instance", "name": FIRST},
            "ports": [{"name": "ssh", "port": 22}],
        }
        await self.place.create(IP_CLAIM, build_object(IP_CLAIM, "machine", spec=claim))

    async def wait_ready(self) -> None:
        await self.place.cluster.wait_ready(INSTANCE, self.place.key(FIRST))
        await self.place.cluster.wait_ready(IP_CLAIM, self.place.key("machine"), "Bound")

    def show(self, kind: Kind, manifest: Manifest) -> object:
        if kind is VIRTUAL_MACHINE_INSTANCE:
            return [text_at(manifest, "status", name) for name in ("phase", "nodeName")]
        return super().show(kind, manifest)


class ClusterUsers(Users):
    """A cluster of two machines."""

    own_kinds = (KUBERNETES_CLUSTER,)
    kinds = (KUBERNETES_CLUSTER, INSTANCE, SECRET)
    values = {
        "settings__apiUrl": f"https://{service_name()}:{GUEST_PORT}",
        "settings__apiPollSeconds": 1,
    }

    def build(self, name: str, network: str = "missing", count: int = 0) -> tuple[Kind, Manifest]:
        size = self.place.namespace
        spec = {
            "version": "v1.34.2",
            "image": {"registry": "docker://registry.example.com/node:v1.34.2"},
            "networkRef": {"name": network},
            "controlPlane": {"size": size, "endpoint": {"poolName": self.place.namespace}},
            "pools": [{"name": "web", "count": count, "size": size}],
        }
        return KUBERNETES_CLUSTER, build_object(KUBERNETES_CLUSTER, name, spec=spec)

    async def create(self) -> None:
        await self.place.create(*self.build(FIRST, network="lan", count=1))

    async def wait_ready(self) -> None:
        async def is_reported() -> bool:
            key = self.place.key(FIRST)
            held = await self.place.cluster.client.get(KUBERNETES_CLUSTER, key)
            ready = find_condition(held, "Ready") or {}
            # Networks of 0.1.0 cannot run clusters on a real KubeVirt: this release says so, and
            # leaves the machines as they are.
            unsuitable = ready.get("reason") == Reason.NETWORK_UNSUITABLE
            assert ready.get("status") == "True" or unsuitable, ready
            return True

        await eventually(is_reported, f"KubernetesCluster {FIRST} is reported")

    def show(self, kind: Kind, manifest: Manifest) -> object:
        name = manifest["metadata"]["name"]
        # Authorities and kubeconfigs; user data is for the next installation of a machine.
        if kind is SECRET and not name.endswith("-user-data"):
            return sha256(repr(manifest.get("data")).encode()).hexdigest()
        return super().show(kind, manifest)
