"""`KubeVirtSim`: the simulator as a library, for any API server."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import Any, Final, Self

from lab.kubevirt_sim.behavior import PREFIX, SILENT
from lab.kubevirt_sim.crds import SIMULATED, build_crds
from lab.kubevirt_sim.disks import (
    build_disk_controller,
    build_profile_controller,
    build_volume_controller,
)
from lab.kubevirt_sim.edge import SimulatorContext
from lab.kubevirt_sim.instances import build_instance_controller
from lab.kubevirt_sim.load_balancer import build_load_balancer
from lab.kubevirt_sim.machines import build_machine_controller
from lab.kubevirt_sim.nodes import build_kubelet, build_node, build_scheduler
from lab.kubevirt_sim.settings import SimulatorSettings
from lab.kubevirt_sim.snapshots import build_snapshot_controller
from lab.kubevirt_sim.storage import DEFAULT, build_class
from lab.kubevirt_sim.timing import INSTANT, ScaledClock, StepTimers, Timing
from lab.kubevirt_sim.transfers import build_migration_controller
from libs.common.apply import shows
from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.config import ConnectionConfig
from libs.common.errors import AlreadyExists, NotFound, SlipwayError
from libs.common.kinds import CRD, NODE, STORAGE_CLASS, Key, Kind, Manifest, key_of
from libs.common.reading import text_map_at
from libs.common.runtime import Controller, Operator
from libs.common.runtime.manager import Manager
from libs.common.testing.clock import FakeClock
from libs.common.testing.serving import kinds_of
from libs.contracts.kubevirt import VIRTUAL_MACHINE_INSTANCE

ID: Final = "kubevirt-sim"
_SERVED_SECONDS: Final = 180.0
_POLL: Final = 0.05
_PAUSE: Final = 0.005
_RETRY: Final = 0.05
"""Seconds by which a clock is moved at a time while something must be tried again."""

IN_TESTS: Final[Mapping[str, Any]] = {
    "watch_namespaces": ("*",),
    "leader_elect": False,
    "metrics_bind_address": "0",
    "health_probe_bind_address": "0",
    "backoff_base_seconds": 0.01,
    "backoff_max_seconds": 0.5,
    "heartbeats": False,
}
"""Settings of a simulator in the process of a test."""


class SimulatorConflict(SlipwayError):
    """The cluster has a real KubeVirt or CDI, which a simulator must not touch."""

    def __init__(self, name: str) -> None:
        """Name the CRD that is not the simulator's."""
        super().__init__(
            f"CustomResourceDefinition {name} is not the simulator's: this cluster has the real "
            "thing; use that, or another cluster"
        )


class KubeVirtSim:
    """A simulation of KubeVirt and CDI in this process.

    ```python
    async with KubeVirtSim(api.config) as sim:
        await sim.client.create(VIRTUAL_MACHINE, build_vm())
        await sim.converged()
    ```

    Args:
        config: Connection to the API server, with all rights.
        timing: How long things take; by default no time at all.
        clock: Time source of the delays; None for real time.
        seed: Decides the jitter of back-offs.
        settings: Settings, over `IN_TESTS`.

    Attributes:
        client: Connection with all rights.
        simulator: What the controllers share.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        timing: Timing = INSTANT,
        clock: Clock | None = None,
        seed: int = 0,
        settings: SimulatorSettings | None = None,
        **options: Any,
    ) -> None:
        """Prepare; nothing is sent before the context is entered."""
        self.settings = settings or SimulatorSettings(**{**IN_TESTS, **options})
        self.clock: Clock = clock or ScaledClock(self.settings.speed)
        self.client = Client(config, user_agent=ID)
        self.simulator = SimulatorContext(
            timing=timing,
            watches=StepTimers(self.clock),
            mode=self.settings.launchers,
            image=self.settings.launcher_image,
            heartbeats=self.settings.heartbeats,
            chance=random.Random(seed).random,
            rollout=self.settings.rollout,
            load_balancer=self.settings.load_balancer,
        )
        self.config = config
        self.manager: Manager | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> Self:
        """Install the CRDs and nodes, start, and wait until the controllers work."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop and close the connections; what is in the API server stays."""
        await self.stop()
        await self.client.close()

    async def start(self) -> None:
        """Start the controllers; after `stop`, they start like a new process without memory."""
        await self.install()
        self.simulator.watches = StepTimers(self.clock)
        self.simulator.placements.clear()
        self.simulator.granted.clear()
        self.manager = self.build_manager()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self.manager.run(self._stop), name=ID)
        working = asyncio.create_task(self.manager.working.wait())
        await asyncio.wait({self._task, working}, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        if self._task.done():
            raise RuntimeError("The simulator ended before it worked; its log says why")

    async def stop(self) -> None:
        """Stop the controllers."""
        if self._task is not None:
            self._stop.set()
            task, self._task = self._task, None
            await task

    async def ended(self) -> None:
        """Wait until the controllers end by themselves: something broke."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def build_manager(self) -> Manager:
        """Build the manager of the controllers."""
        return self.build_operator().build_manager(self.settings, self.config, clock=self.clock)

    def build_operator(self) -> Operator:
        """Declare the simulator as an operator of the library."""
        return Operator(
            ID,
            [lambda _, each=each: each for each in build_controllers(self.simulator)],  # type: ignore[misc] # bound at definition
            settings=SimulatorSettings,
            summary="Simulates KubeVirt and CDI.",
        )

    # The world.

    async def install(self) -> None:
        """Install the CRDs, and simulated nodes if requested.

        Raises:
            SimulatorConflict: The cluster has CRDs of the real thing.
        """
        for crd in build_crds():
            await self._install_crd(crd)
        if self.simulator.simulated:
            for number in range(1, self.settings.nodes + 1):
                await self.add_node(number)
            await self._add_storage_class()

    async def add_node(self, number: int) -> str:
        """Add a node that the simulator plays, `sim-node-<number>`; returns its name."""
        node = build_node(number)
        with contextlib.suppress(AlreadyExists):
            await self.client.create(NODE, node)
        return key_of(node).name

    async def _add_storage_class(self) -> None:
        """Add the class of the disks that the simulator provides; the default if none is yet."""
        held = (await self.client.list(STORAGE_CLASS)).items
        marks = (text_map_at(each, "metadata", "annotations").get(DEFAULT) for each in held)
        with contextlib.suppress(AlreadyExists):
            await self.client.create(STORAGE_CLASS, build_class(default="true" not in marks))

    async def silence(self, node: str) -> None:
        """Have a node stop: nothing on it starts, ends or reports any more."""
        await self.annotate(NODE, Key("", node), **{SILENT.removeprefix(PREFIX): "true"})

    async def revive(self, node: str) -> None:
        """Have a silent node continue."""
        await self.annotate(NODE, Key("", node), **{SILENT.removeprefix(PREFIX): None})

    async def evict(self, key: Key) -> None:
        """Ask an instance to leave its node, as the eviction webhook of KubeVirt does."""
        vmi = await self.client.get(VIRTUAL_MACHINE_INSTANCE, key)
        status = {"evacuationNodeName": (vmi.get("status") or {}).get("nodeName")}
        await self.client.patch(VIRTUAL_MACHINE_INSTANCE, key, {"status": status})

    async def annotate(self, kind: Kind, key: Key, **notes: str | None) -> None:
        """Set annotations of the simulator on an object: `agent_seconds="3"`; None removes one."""
        named = {PREFIX + name.replace("_", "-"): value for name, value in notes.items()}
        await self.client.patch(kind, key, {"metadata": {"annotations": named}})

    async def find(self, kind: Kind, key: Key) -> Manifest | None:
        """Read an object; None when there is none."""
        try:
            return await self.client.get(kind, key)
        except NotFound:
            return None

    def list_instances(self) -> list[Manifest]:
        """List the virtual machine instances of all namespaces, as the controllers have them."""
        informer = self.manager and self.manager.cache.find(VIRTUAL_MACHINE_INSTANCE)
        return informer.store.list(None, None) if informer else []

    # Waiting.

    async def converged(self, seconds: float = 60.0) -> None:
        """Wait until the simulator has nothing to do before time passes or somebody writes.

        A clock that is moved by hand is moved by as much as it takes to try again what met a
        newer version of an object.

        Raises:
            AssertionError: It still had after some seconds.
        """
        try:
            async with asyncio.timeout(seconds):
                while not await self._is_settled():
                    if self._is_failing() and isinstance(self.clock, FakeClock):
                        self.clock.advance(_RETRY)
                    await asyncio.sleep(_PAUSE)
        except TimeoutError:
            raise AssertionError(f"The simulator is still busy after {seconds} s") from None

    def _idle(self) -> bool:
        manager = self.manager
        idle = manager is not None and all(runner.queue.idle for runner in manager.runners)
        return idle and not self._is_failing()

    def _is_failing(self) -> bool:
        runners = self.manager.runners if self.manager else ()
        return any(runner.queue.idle and runner.queue.failing for runner in runners)

    def _passes(self) -> int:
        return sum(runner.reconciles for runner in self.manager.runners) if self.manager else 0

    async def _is_settled(self) -> bool:
        """Return whether nothing was done while the caches were compared with the API server."""
        passes = self._passes()
        return (
            self._idle() and await self._is_current() and self._idle() and passes == self._passes()
        )

    async def _is_current(self) -> bool:
        manager = self.manager
        assert manager is not None
        for informer in manager.cache:
            if not informer.served:
                continue
            listing = await self.client.list(informer.kind)
            live = {key_of(each): _version_of(each) for each in listing.items}
            held = {key: _version_of(informer.store.get(key) or {}) for key in informer.store}
            if held != live:
                return False
        return True

    async def _install_crd(self, crd: Manifest) -> None:
        key = key_of(crd)
        held = await self.find(CRD, key)
        if held is None:
            await self.client.create(CRD, crd)
        else:
            notes = held["metadata"].get("annotations") or {}
            if notes.get(SIMULATED) != "true":
                raise SimulatorConflict(key.name)
            if not shows(held["spec"], crd["spec"]):
                await self.client.apply(CRD, crd, field_manager=ID)
        async with asyncio.timeout(_SERVED_SECONDS):
            for kind in kinds_of(crd):
                while not await self._is_served(kind):
                    await asyncio.sleep(_POLL)

    async def _is_served(self, kind: Kind) -> bool:
        with contextlib.suppress(SlipwayError):
            return await self.client.serves(kind)
        return False


def build_controllers(simulator: SimulatorContext) -> list[Controller]:
    """Build the controllers of a simulator."""
    builders = [
        build_machine_controller,
        build_instance_controller,
        build_migration_controller,
        build_disk_controller,
        build_profile_controller,
        build_snapshot_controller,
    ]
    if simulator.simulated:
        builders += [build_scheduler, build_kubelet, build_volume_controller]
    if simulator.load_balancer != "Off":
        builders.append(build_load_balancer)
    return [build(simulator) for build in builders]


def _version_of(manifest: Mapping[str, Any]) -> tuple[str, str]:
    metadata = manifest.get("metadata") or {}
    return metadata.get("uid", ""), metadata.get("resourceVersion", "")
