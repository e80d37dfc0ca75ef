"""A cluster with KubeVirt and CDI, simulated or real, as the cases of the parity suite see it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from lab.kubevirt_sim.attach import attach
from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.simulator import KubeVirtSim
from lab.kubevirt_sim.timing import Timing
from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.config import ConnectionConfig
from libs.common.errors import ApiError, NotFound, SlipwayError
from libs.common.kinds import (
    NAMESPACE,
    NODE,
    STORAGE_CLASS,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.reading import holds_at, text_at, text_map_at
from libs.common.testing.fakeapi import FakeApi
from libs.contracts.cdi import BIND_IMMEDIATELY, DATA_VOLUME
from libs.contracts.claims import SELECTED_NODE
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE

BRISK: Final = Timing(
    schedule=0.01,
    start_pod=0.02,
    boot=0.05,
    agent=0.1,
    shutdown=0.05,
    grace=0.5,
    bind=0.3,
    import_disk=0.1,
    migrate=0.1,
    snapshot=0.1,
    crash_backoff=0.1,
)
"""Everything takes a moment, so that states that do not last are seen."""
WEB: Final = "web"


@dataclass(frozen=True, slots=True)
class Images:
    """Where disk images are served.

    Attributes:
        good: One that boots and has a guest agent.
        empty: One that cannot be booted from.
        missing: An address without an image.
    """

    good: str = "http://images.example.com/linux.img"
    empty: str = "http://images.example.com/no-boot.img"
    missing: str = "http://images.example.com/missing.img"


@dataclass(slots=True)
class Site:
    """A cluster, and a namespace of a case in it.

    Attributes:
        client: Connection with all rights.
        config: How to connect.
        namespace: Namespace of the case.
        real: Whether KubeVirt and CDI are real.
        images: Images to fill disks from.
        storage_class: Class that waits for its first consumer and that CDI does not know.
        seconds: Longest time that anything takes.
    """

    client: Client
    config: ConnectionConfig
    namespace: str
    real: bool = False
    images: Images = Images()
    storage_class: str = "standard"
    seconds: float = 10.0

    @property
    def web(self) -> Key:
        """Key of the machine of the case, and of its instance."""
        return Key(self.namespace, WEB)

    async def until[T](self, probe: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Poll until a probe returns something true.

        Raises:
            AssertionError: It did not in time.
        """
        last: T | None = None
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    with contextlib.suppress(NotFound):
                        last = await probe()
                        if last:
                            return last
                    await asyncio.sleep(0.5 if self.real else 0.01)
        except TimeoutError:
            raise AssertionError(f"Gave up waiting until {what}; last seen: {last}") from None

    async def require_nodes(self, count: int) -> None:
        """Skip the test on a real cluster with fewer nodes that run machines."""
        if self.real and (found := len(await list_nodes(self.client))) < count:
            pytest.skip(f"needs {count} nodes that run machines, and there are {found}")

    async def machine(self) -> Manifest:
        """Read the machine."""
        return await self.client.get(VIRTUAL_MACHINE, self.web)

    async def instance(self) -> Manifest:
        """Read its instance."""
        return await self.client.get(VIRTUAL_MACHINE_INSTANCE, self.web)

    async def disk(self, name: str = "root") -> Manifest:
        """Read a DataVolume."""
        return await self.client.get(DATA_VOLUME, Key(self.namespace, name))

    async def create_machine(
        self, *, disk: str = "", strategy: str = "Always", data: str = ""
    ) -> None:
        """Create a machine with 64 MiB; without a disk, QEMU runs and nothing boots.

        Args:
            disk: DataVolume to boot from; empty for none.
            strategy: Run strategy.
            data: DataVolume of a second disk; empty for none.
        """
        machine = build_machine(self.namespace, disk, strategy)
        if data:
            spec = machine["spec"]["template"]["spec"]
            spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
            spec["volumes"].append({"name": "data", "dataVolume": {"name": data}})
        await self.client.create(VIRTUAL_MACHINE, machine)

    async def start_machine(self, *, disk: str = "") -> Manifest:
        """Create a machine and wait until it is ready; returns its instance."""
        await self.create_machine(disk=disk)
        return await self.until_running()

    async def until_running(self) -> Manifest:
        """Wait until the machine runs and says so; returns its instance."""

        async def probe() -> Manifest | None:
            vm = await self.machine()
            vmi = await self.instance()
            ready = text_at(vmi, "status", "phase") == "Running" and holds_at(vmi, "Ready")
            seen = text_at(vm, "status", "printableStatus") == "Running" and holds_at(vm, "Ready")
            return vmi if ready and seen else None

        return await self.until(probe, "the machine runs")

    async def until_gone(self, kind: Kind, key: Key) -> None:
        """Wait until an object is gone."""

        async def probe() -> bool:
            try:
                await self.client.get(kind, key)
            except NotFound:
                return True
            return False

        await self.until(probe, f"{key} is gone")

    async def change(self, spec: Mapping[str, Any]) -> Manifest:
        """Change the spec of the machine, even if it is written to at the same time."""
        return await self.client.patch(VIRTUAL_MACHINE, self.web, {"spec": dict(spec)})

    async def halt(self, **spec: Any) -> Manifest:
        """Halt the machine and wait until its instance is gone; returns the machine."""
        await self.change({"runStrategy": "Halted", **spec})
        await self.until_gone(VIRTUAL_MACHINE_INSTANCE, self.web)

        async def probe() -> Manifest | None:
            vm = await self.machine()
            word = text_at(vm, "status", "printableStatus")
            return vm if word == "Stopped" and not vm["status"].get("created") else None

        return await self.until(probe, "the machine is stopped")

    async def create_disk(
        self, name: str = "root", *, url: str = "", node: str = "", fault: str = "", **storage: Any
    ) -> None:
        """Create a DataVolume on the class of the site; it asks to be bound immediately.

        The simulator makes `fault` of the import: `fail` or `error`.
        """
        notes = {BIND_IMMEDIATELY: "true", **({SELECTED_NODE: node} if node else {})}
        source = url or self.images.good
        if fault or source == self.images.missing:
            notes[PREFIX + "import"] = fault or "error"
        spec = {
            "source": {"http": {"url": source}},
            "storage": {
                "storageClassName": self.storage_class,
                "resources": {"requests": {"storage": "64Mi"}},
                **storage,
            },
        }
        metadata = {"annotations": notes}
        disk = build_object(DATA_VOLUME, name, self.namespace, metadata=metadata, spec=spec)
        await self.client.create(DATA_VOLUME, disk)

    async def fill_disk(self, name: str = "root", *, url: str = "") -> None:
        """Create a ReadWriteOnce disk and wait until it is filled."""
        await self.create_disk(name, url=url, accessModes=["ReadWriteOnce"])

        async def probe() -> bool:
            return text_at(await self.disk(name), "status", "phase") == "Succeeded"

        await self.until(probe, "the disk is filled")


async def refused(request: Awaitable[object], code: int, *words: str) -> None:
    """Expect that a request is refused with a code and with some words."""
    with pytest.raises(ApiError) as caught:
        await request
    error = caught.value
    assert error.status == code, error
    assert all(each in error.message for each in words), error


def read(manifest: Mapping[str, Any], type_: str) -> tuple[str, str, str]:
    """Return status, reason and message of a condition; empty texts if it is not there."""
    found = find_condition(manifest, type_) or {}
    status, reason, message = (str(found.get(name, "")) for name in ("status", "reason", "message"))
    return status, reason, message


def build_machine(namespace: str, disk: str = "", strategy: str = "Always") -> Manifest:
    """Build a machine that costs little."""
    volumes = [{"name": "root", "dataVolume": {"name": disk}}] if disk else []
    disks = [{"name": "root", "disk": {"bus": "virtio"}}] if disk else []
    spec = {
        "domain": {
            "cpu": {"cores": 1, "sockets": 1, "threads": 1},
            "memory": {"guest": "256Mi" if disk else "64Mi"},
            "devices": {
                "disks": disks,
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "terminationGracePeriodSeconds": 5,
        "networks": [{"name": "default", "pod": {}}],
        "volumes": volumes,
    }
    # Nothing boots without a disk.
    notes = {} if disk else {PREFIX + "agent": "false"}
    template = {"metadata": {"labels": {"app": WEB}, "annotations": notes}, "spec": spec}
    return build_object(
        VIRTUAL_MACHINE, WEB, namespace, spec={"runStrategy": strategy, "template": template}
    )


def build_local_class(name: str) -> Manifest:
    """Build a StorageClass that waits for its first consumer and that CDI does not know."""
    return build_object(
        STORAGE_CLASS,
        name,
        provisioner="rancher.io/local-path",
        volumeBindingMode="WaitForFirstConsumer",
    )


async def list_nodes(client: Client) -> list[str]:
    """List the nodes on which KubeVirt runs machines."""
    nodes = (await client.list(NODE)).items
    label = "kubevirt.io/schedulable"
    return sorted(
        key_of(each).name
        for each in nodes
        if text_map_at(each, "metadata", "labels").get(label) == "true"
    )


@contextlib.asynccontextmanager
async def open_simulated(api: FakeApi) -> AsyncIterator[Site]:
    """Open a site on the simulator."""
    api.create(build_local_class("standard"))
    async with KubeVirtSim(api.config, timing=BRISK) as sim:
        attach(sim, api)
        yield Site(sim.client, api.config, "parity")


@contextlib.asynccontextmanager
async def open_real(
    config: ConnectionConfig, namespace: str, images: Images
) -> AsyncIterator[Site]:
    """Open a site on a real KubeVirt; its namespace and StorageClass are deleted afterwards."""
    async with Client(config, user_agent="kubevirt-parity") as client:
        made = await client.create(NAMESPACE, build_object(NAMESPACE, namespace))
        # The StorageProfile of the default class may have been completed by an administrator.
        local = await client.create(STORAGE_CLASS, build_local_class(namespace))
        site = Site(
            client,
            config,
            namespace,
            real=True,
            images=images,
            storage_class=namespace,
            seconds=240.0,
        )
        try:
            yield site
        finally:
            with contextlib.suppress(SlipwayError):
                await client.delete(NAMESPACE, Key("", namespace), uid=uid_of(made))
                await site.until_gone(NAMESPACE, Key("", namespace))
            with contextlib.suppress(SlipwayError):
                await client.delete(STORAGE_CLASS, Key("", namespace), uid=uid_of(local))
