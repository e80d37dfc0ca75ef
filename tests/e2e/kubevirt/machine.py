"""The machine of these tests: how it is built, operated on and looked at."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from lab.guest.serve import URL
from libs.common.errors import NotFound
from libs.common.kinds import PVC, Key, Manifest, build_object
from libs.common.reading import map_at, maps_at, text_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import INSTANCE, OPERATION
from libs.contracts.instancetypes import CLUSTER_INSTANCETYPE
from libs.contracts.ip_claims import IP_CLAIM, IP_POOL
from libs.contracts.kubevirt import (
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VmiView,
    VmView,
)
from operators.compute.samples import build_instance, build_operation
from tests.e2e.cluster import Cluster, eventually
from tools.cluster.commands import read
from tools.cluster.docker import find_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster

NAMESPACE_NAME: Final = "e2e-kubevirt"
SIZE: Final = "e2e-kubevirt"
LARGER: Final = "e2e-kubevirt-larger"
WEB: Final = Key(NAMESPACE_NAME, "web")
ADDRESS: Final = "192.0.2.200"
"""Public address of the tests."""
_FINAL: Final = ("Succeeded", "Failed", "Cancelled")


def build_machine(key: Key = WEB, root_disk: Mapping[str, object] | None = None) -> Manifest:
    """Build an Instance; its root disk is on the default StorageClass unless told otherwise."""
    return build_instance(
        key.name,
        key.namespace,
        size=SIZE,
        image={"url": URL},
        rootDisk=root_disk or {"accessModes": ["ReadWriteOnce"]},
        terminationGracePeriodSeconds=30,
    )


def build_instancetype(name: str, memory: str) -> Manifest:
    """Build an instancetype of the cluster with one processor."""
    spec = {"cpu": {"guest": 1}, "memory": {"guest": memory}}
    return build_object(CLUSTER_INSTANCETYPE, name, spec=spec)


@contextlib.asynccontextmanager
async def open_address(cluster: Cluster, machine: Machine) -> AsyncIterator[None]:
    """Claim `ADDRESS` for port 80 of a machine, and release it afterwards."""
    pool, name = f"{machine.key.namespace}-public", machine.key.name
    spec = {"family": "IPv4", "addresses": [ADDRESS], "reuseGraceSeconds": 0}
    await cluster.client.create(IP_POOL, build_object(IP_POOL, pool, spec=spec))
    claim = {
        "poolRef": {"name": pool},
        "target": {"kind": INSTANCE.kind, "name": name},
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
    }
    try:
        await cluster.client.create(
            IP_CLAIM, build_object(IP_CLAIM, name, machine.key.namespace, spec=claim)
        )
        yield
    finally:
        with contextlib.suppress(NotFound):
            await cluster.delete(IP_CLAIM, machine.key)
        await cluster.wait_gone(IP_CLAIM, machine.key)
        await cluster.delete(IP_POOL, Key("", pool))


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine on its cluster."""

    cluster: Cluster
    kind: KindCluster
    key: Key = WEB

    async def operate(self, type_: str, **spec: object) -> Manifest:
        """Run an Operation to its end, whichever, and return it.

        Raises:
            AssertionError: It does not end in time.
        """
        name = f"{type_.lower()}-{time.monotonic_ns() % 10**9}"
        operation = build_operation(type_, name, self.key.name, self.key.namespace, **spec)
        await self.cluster.client.create(OPERATION, operation)
        key, held = Key(self.key.namespace, name), dict[str, object]()

        async def has_ended() -> bool:
            held.clear()
            held.update(await self.cluster.client.get(OPERATION, key))
            status = held.get("status")
            phase = text_at(held, "status", "phase")
            assert phase in _FINAL, status
            return True

        await eventually(has_ended, f"{type_} has ended")
        return held

    async def succeed(self, type_: str, **spec: object) -> None:
        """Run an Operation that must succeed.

        Raises:
            AssertionError: It did not.
        """
        held = await self.operate(type_, **spec)
        assert text_at(held, "status", "phase") == "Succeeded", held["status"]

    async def change(self, **spec: object) -> None:
        """Change fields of the Instance, and wait until the operator has seen them."""
        held = await self.cluster.client.patch(INSTANCE, self.key, {"spec": spec})
        generation = held["metadata"]["generation"]

        async def is_seen() -> bool:
            found = await self.cluster.client.get(INSTANCE, self.key)
            status = found.get("status") or {}
            assert status.get("observedGeneration") == generation, status
            return True

        await eventually(is_seen, "the operator has seen the change")

    async def change_template(self) -> None:
        """Change what KubeVirt applies at the next start alone; a run has an old template then."""
        held = await self.cluster.client.get(INSTANCE, self.key)
        seconds = held["spec"]["terminationGracePeriodSeconds"]
        await self.change(terminationGracePeriodSeconds=seconds + 1)
        wanted = seconds + 1

        async def is_written() -> bool:
            machine = await self.cluster.client.get(VIRTUAL_MACHINE, self.key)
            template = map_at(machine, "spec", "template", "spec")
            assert template["terminationGracePeriodSeconds"] == wanted, template
            return True

        await eventually(is_written, "the template of the machine has changed")

    async def run(self) -> VmiView:
        """Return the run that there is."""
        return VmiView.parse(await self.cluster.client.get(VIRTUAL_MACHINE_INSTANCE, self.key))

    async def buses(self) -> list[str]:
        """Return the buses of the disks of the run."""
        held = await self.cluster.client.get(VIRTUAL_MACHINE_INSTANCE, self.key)
        disks = maps_at(held, "spec", "domain", "devices", "disks")
        return [text_at(each, "disk", "bus") for each in disks]

    async def has_run(self) -> bool:
        """Return whether there is a run."""
        try:
            return bool((await self.run()).uid)
        except NotFound:
            return False

    async def memory(self) -> str:
        """Return the memory that the guest has, in the words of KubeVirt."""
        found = await self.cluster.client.get(VIRTUAL_MACHINE_INSTANCE, self.key)
        return text_at(found, "status", "memory", "guestCurrent")

    async def disk(self) -> str:
        """Return the name of the disk that the machine boots from."""
        return VmView.parse(await self.cluster.client.get(VIRTUAL_MACHINE, self.key)).disks["root"]

    async def shown(self, *path: str) -> str:
        """Return a text in the status of the Instance; empty if it is not there."""
        return text_at(await self.cluster.client.get(INSTANCE, self.key), "status", *path)

    async def claims(self) -> set[str]:
        """Return the names of the claims in the namespace."""
        listing = await self.cluster.client.list(PVC, self.key.namespace)
        return {each["metadata"]["name"] for each in listing.items}

    async def filling(self) -> set[str]:
        """Return the names of the DataVolumes that are not filled yet."""
        held = (await self.cluster.client.list(DATA_VOLUME, self.key.namespace)).items
        unfilled = [each for each in held if text_at(each, "status", "phase") != "Succeeded"]
        return {each["metadata"]["name"] for each in unfilled}

    async def exists(self) -> bool:
        """Return whether the Instance is there."""
        try:
            await self.cluster.client.get(INSTANCE, self.key)
        except NotFound:
            return False
        return True

    async def is_ready(self) -> bool:
        """Return whether the Instance is Ready."""
        conditions = (await self.cluster.client.get(INSTANCE, self.key)).get("status", {})
        found = {each["type"]: each["status"] for each in conditions.get("conditions", [])}
        return found.get("Ready") == "True"

    async def boots(self, address: str = "") -> int:
        """Return the number of boots of the disk, which the guest tells on its page.

        Args:
            address: Address to ask; empty for the one in the pod network.

        Raises:
            AssertionError: The guest does not answer.
        """
        found = await self.cluster.client.get(VIRTUAL_MACHINE_INSTANCE, self.key)
        interfaces = found.get("status", {}).get("interfaces") or [{}]
        page = self.fetch(f"http://{address or interfaces[0].get('ipAddress', '')}/")
        assert "boots of this disk:" in page, page
        return int(page.rpartition(":")[2])

    def fetch(self, url: str) -> str:
        """Fetch a page from the node, which is outside of the pod network.

        Raises:
            AssertionError: The machine does not respond.
        """
        docker = find_docker(self.kind.cache)
        assert docker is not None, "docker answers"
        node = f"{self.kind.name}-control-plane"
        command = ["docker", "exec", node, "curl", "--silent", "--fail", "--max-time", "4", url]
        try:
            return read(command, env=docker.environment(), seconds=20)
        except ToolError as err:
            raise AssertionError(f"{url}: {err}") from err
