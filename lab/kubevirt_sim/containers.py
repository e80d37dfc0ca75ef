"""Runs the guests of simulated machines as containers with systemd and cloud-init.

The simulator plays everything around a guest. This adds guests that do what their user data says,
such as becoming nodes of a Kubernetes cluster with kubeadm. A container has the address that the
simulated launcher pod has, on a docker network that the nodes of the kind cluster are attached to,
so packets reach it as they reach a pod.

A container is the disk of a machine: it is created for a claim, starts and stops with the instance
that uses the claim, and is removed with the claim. It is a stand-in: the disk is not filled from
the image of the DataVolume, and the kernel is that of this machine.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import structlog

from lab.kubevirt_sim.launcher import claim_of
from libs.common.client import Client
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import PVC, SECRET, Key, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import maps_at, text_at
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE
from tools.cluster.docker import Docker, list_containers
from tools.cluster.errors import CommandFailed, ToolError

log = structlog.get_logger(__name__)

NETWORK: Final = "slipway-guests"
"""Docker network of the containers; its range has the addresses of simulated launcher pods."""
SUBNET: Final = "10.200.0.0/16"
ROUTER: Final = "10.200.255.254"
"""Address of the first node of the kind cluster on the network: the way out for guests, as a node
is for its pods."""
_LABEL: Final = "dev.slipway.guests"
_LOOK_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 10
_RUN: Final = (
    *("--privileged", "--security-opt", "seccomp=unconfined", "--security-opt"),
    *("apparmor=unconfined", "--tmpfs", "/tmp", "--tmpfs", "/run", "--volume", "/var"),
    *("--cgroupns=private", "--network", NETWORK),
)
"""Options of `docker create` that systemd and a kubelet need; kind runs its nodes with the same."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a machine: which instance uses which disk, with which address."""

    uid: str
    name: str
    disk: str
    address: str
    settings: Key


class ContainerGuests:
    """Run guests while the context is entered.

    Args:
        client: Reads instances, their claims and their user data.
        docker: Runs the containers.
        image: What a disk holds at first; see `lab.guest.container`.
        node: Name of the container of the kind cluster's first node.
    """

    def __init__(self, client: Client, docker: Docker, image: str, node: str) -> None:
        """Prepare; nothing runs before the context is entered."""
        self._client = client
        self._docker = docker
        self._image = image
        self._node = node
        self._label = f"{_LABEL}={node}"
        self._running: dict[str, Run] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Attach the node to the network of the guests, and begin to look at instances."""
        await self._remove_all()
        await self._call("network", "create", "--subnet", SUBNET, "--label", self._label, NETWORK)
        await self._call("network", "connect", "--ip", ROUTER, NETWORK, self._node)
        self._task = asyncio.create_task(self._run(), name="container-guests")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Remove the containers and their network."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._remove_all()

    def container_of(self, instance: str) -> str:
        """Return the container that runs the guest of an instance, by the name of the instance.

        Raises:
            AssertionError: None runs.
        """
        found = [run.disk for run in self._running.values() if run.name == instance]
        assert found, f"no container runs the guest {instance}"
        return _container_name(found[0])

    async def run_inside(self, instance: str, *command: str) -> str:
        """Run a command in a guest and return what it prints.

        Raises:
            AssertionError: No container runs the guest.
            ToolError: The command failed.
        """
        return await self._call("exec", self.container_of(instance), *command)

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except (SlipwayError, ToolError) as err:
                log.warning("Failing to look at guests", error=str(err))
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Start and stop containers as instances begin and end, and remove those without a disk."""
        listing = await self._client.list(VIRTUAL_MACHINE_INSTANCE)
        runs = [run for vmi in listing.items if (run := await self._find_run(vmi)) is not None]
        wanted = {run.disk: run for run in runs}
        for disk, run in list(self._running.items()):
            if wanted.get(disk) != run:
                await self._call("stop", "--time", str(_STOP_SECONDS), _container_name(disk))
                del self._running[disk]
                log.info("Stopped the guest of an instance", instance=run.name)
        held = await asyncio.to_thread(list_containers, self._docker, self._label)
        names = {each["Names"] for each in held}
        claims = {uid_of(each) for each in (await self._client.list(PVC)).items}
        for name in names - {_container_name(uid) for uid in claims}:
            await self._call("rm", "--force", "--volumes", name)
        for disk, run in wanted.items():
            if disk not in self._running:
                await self._start(run, new=_container_name(disk) not in names)
                self._running[disk] = run

    async def _find_run(self, vmi: Manifest) -> Run | None:
        """Return the run that an instance is; None where no guest should run."""
        addresses = maps_at(vmi, "status", "interfaces")
        address = text_at(addresses[0], "ipAddress") if addresses else ""
        if text_at(vmi, "status", "phase") != "Running" or is_deleting(vmi) or not address:
            return None
        volumes, namespace = maps_at(vmi, "spec", "volumes"), key_of(vmi).namespace
        settings = [text_at(each, "cloudInitNoCloud", "secretRef", "name") for each in volumes]
        claims = [claim_of(each) for each in volumes]
        secret, claim = next(filter(None, settings), ""), next(filter(None, claims), "")
        if not secret or not claim:
            return None
        try:
            disk = uid_of(await self._client.get(PVC, Key(namespace, claim)))
        except NotFound:
            return None
        return Run(uid_of(vmi), key_of(vmi).name, disk, address, Key(namespace, secret))

    async def _start(self, run: Run, *, new: bool) -> None:
        container = _container_name(run.disk)
        if new:
            labels = ("--label", self._label, "--name", container, "--hostname", run.name)
            await self._call("create", *_RUN, *labels, "--ip", run.address, self._image)
            await self._write_settings(run, container)
        else:
            await self._call("network", "disconnect", NETWORK, container)
            await self._call("network", "connect", "--ip", run.address, NETWORK, container)
        await self._call("start", container)
        await self._call("exec", container, "ip", "route", "replace", "default", "via", ROUTER)
        log.info("Started the guest of an instance", instance=run.name, address=run.address)

    async def _write_settings(self, run: Run, container: str) -> None:
        secret = await self._client.get(SECRET, run.settings)
        with tempfile.TemporaryDirectory() as folder:
            seed = Path(folder, "cloud", "seed", "nocloud")
            seed.mkdir(parents=True)
            identity = {"instance-id": run.disk, "local-hostname": run.name}
            (seed / "meta-data").write_text(json.dumps(identity))
            data = base64.b64decode(text_at(secret, "data", "userdata"))
            (seed / "user-data").write_bytes(data)
            await self._call("cp", str(seed.parents[1]), f"{container}:/var/lib/")

    async def _remove_all(self) -> None:
        """Remove what an earlier run left, too."""
        held: list[Mapping[str, str]] = [
            *await asyncio.to_thread(list_containers, self._docker, self._label)
        ]
        for each in held:
            await self._call("rm", "--force", "--volumes", each["Names"])
        query = ("network", "ls", "--quiet", "--filter", f"label={self._label}")
        for network in (await self._call(*query)).split():
            with contextlib.suppress(CommandFailed):  # The node may not be attached.
                await self._call("network", "disconnect", "--force", network, self._node)
            await self._call("network", "rm", network)
        self._running.clear()

    async def _call(self, *arguments: str) -> str:
        return await asyncio.to_thread(self._docker.read, *arguments)


def _container_name(disk: str) -> str:
    return f"slipway-guest-{disk}"
