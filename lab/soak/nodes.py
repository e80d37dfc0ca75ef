"""Nodes: kill parts of the kind cluster while operators work, and wait until all is well."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from lab.soak.workloads import Workload, build_initial_objects
from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.config import load_config
from libs.common.errors import AlreadyExists, NotFound, SlipwayError
from libs.common.kinds import POD, Key, Kind, Manifest, build_object, uid_of
from tools.cluster.docker import Docker, find_docker
from tools.cluster.errors import ToolError
from tools.cluster.kind_cluster import KindCluster, up

_WAIT: Final = 300.0
_POLL: Final = 0.5
_NEW, _OLD, _GONE = "new", "old", "gone"


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A way in which a part of a node fails.

    Attributes:
        name: What dies.
        kill: Command of docker that kills it; `{}` is the container of the node.
        look: Command of docker that shows another text once it lives again.
    """

    name: str
    kill: tuple[str, ...]
    look: tuple[str, ...]


KILLS: Final = (
    NodeFault("operator pod", (), ()),
    NodeFault(
        "kubelet",  # systemd starts it again.
        ("exec", "{}", "systemctl", "kill", "--signal=KILL", "kubelet"),
        ("exec", "{}", "pgrep", "-x", "kubelet"),
    ),
    NodeFault(
        "API server",  # The kubelet starts it again.
        ("exec", "{}", "pkill", "-9", "-x", "kube-apiserver"),
        ("exec", "{}", "pgrep", "-x", "kube-apiserver"),
    ),
    NodeFault(
        "node",
        ("restart", "--time", "0", "{}"),
        ("inspect", "--format", "{{{{.State.StartedAt}}}}", "{}"),
    ),
)
"""What dies, each while the operators have objects to create, to change and to delete."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The recovery of an operator from a fault.

    Attributes:
        operator: Its id.
        fault: What died.
        seconds: From the death until all its objects were as asked and its pods ready.
        problem: What was not in time; empty for nothing.
    """

    operator: str
    fault: str
    seconds: float
    problem: str = ""


class SoakRun:
    """A run of the operators in a namespace in which they are installed.

    Args:
        works: What they do.
        namespace: Where.
        cluster: The kind cluster.
    """

    def __init__(self, works: Sequence[Workload], namespace: str, cluster: KindCluster) -> None:
        """Prepare."""
        self._works = works
        self._namespace = namespace
        self._cluster = cluster
        docker = find_docker(cluster.cache)
        if docker is None:
            raise ToolError("no docker answers")
        self._docker: Docker = docker

    async def run(self, fault: NodeFault) -> list[Recovery]:
        """Kill a part while there is work, and wait."""
        async with self._connect() as client:
            await self._prepare(client)
            before = self._look(fault)
            for work in self._works:
                await self._begin(client, work)
            pods = await self._list_pods(client)
        started = time.monotonic()
        await self._kill(fault, pods)
        found = await asyncio.gather(
            *(self._wait(work, fault, pods, started) for work in self._works)
        )
        if fault.kill and self._look(fault) == before:
            raise ToolError(f"{fault.name}: it did not die")
        async with self._connect() as client:
            await self._clear(client)
        return found

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[Client]:
        async with Client(await load_config(str(self._cluster.kubeconfig))) as client:
            yield client

    async def _prepare(self, client: Client) -> None:
        for work in self._works:
            for kind, manifest in build_initial_objects(work, self._namespace):
                with contextlib.suppress(AlreadyExists):
                    await client.create(kind, manifest)
            for name in (_OLD, _GONE):
                manifest = build_object(work.kind, name, self._namespace, spec=work.spec)
                await client.create(work.kind, manifest)
        for work, name in itertools.product(self._works, (_OLD, _GONE)):
            if await _until(partial(self._is_healthy, client, work, name), _WAIT) is None:
                raise ToolError(f"{work.operator}: {name} is not ready, though nothing has died")

    async def _begin(self, client: Client, work: Workload) -> None:
        """Ask for something to be made, something to be changed and something to go."""
        manifest = build_object(work.kind, _NEW, self._namespace, spec=work.spec)
        await client.create(work.kind, manifest)
        await client.patch(work.kind, Key(self._namespace, _OLD), {"spec": work.change})
        gone = await client.get(work.kind, Key(self._namespace, _GONE))
        await client.delete(work.kind, Key(self._namespace, _GONE), uid=uid_of(gone))

    async def _kill(self, fault: NodeFault, pods: Sequence[Manifest]) -> None:
        if fault.kill:
            await asyncio.to_thread(self._run, fault.kill)
            if fault.kill[0] == "restart":
                # It gives the node of our own image its network again, as after any restart.
                await asyncio.to_thread(up, self._cluster.name)
            return
        async with self._connect() as client:
            for pod in pods:
                key = Key(self._namespace, pod["metadata"]["name"])
                await client.delete(POD, key, uid=uid_of(pod), grace_seconds=0)

    async def _wait(
        self, work: Workload, fault: NodeFault, before: Sequence[Manifest], started: float
    ) -> Recovery:
        """Wait until an operator has come through, with a new connection for each look."""
        replaced = {uid_of(pod) for pod in before} if not fault.kill else set[str]()
        last = ""

        async def is_through() -> bool:
            nonlocal last
            async with self._connect() as client:
                last = await self._find_problem(client, work, replaced)
            return not last

        seconds = await _until(is_through, _WAIT)
        if seconds is None:
            return Recovery(work.operator, fault.name, _WAIT, last or "nothing answers")
        return Recovery(work.operator, fault.name, time.monotonic() - started)

    async def _find_problem(self, client: Client, work: Workload, replaced: set[str]) -> str:
        for name in (_NEW, _OLD):
            if not await self._is_healthy(client, work, name):
                return f"{work.kind.kind} {name} is not ready"
        with contextlib.suppress(NotFound):
            await client.get(work.kind, Key(self._namespace, _GONE))
            return f"{work.kind.kind} {_GONE} is still there"
        pods = [pod for pod in await self._list_pods(client) if _operator_of(pod) == work.operator]
        if not pods or not all(_is_ready(pod) and uid_of(pod) not in replaced for pod in pods):
            return "the pod of the operator is not ready"
        return ""

    async def _is_healthy(self, client: Client, work: Workload, name: str) -> bool:
        held = await client.get(work.kind, Key(self._namespace, name))
        ready = find_condition(held, "Ready") or {}
        current = ready.get("observedGeneration") == held["metadata"]["generation"]
        return ready.get("status") == "True" and current

    async def _list_pods(self, client: Client) -> list[Manifest]:
        pods = await client.list(POD, self._namespace)
        operators = {work.operator for work in self._works}
        return [pod for pod in pods.items if _operator_of(pod) in operators]

    async def _clear(self, client: Client) -> None:
        for work in self._works:
            for name in (_NEW, _OLD):
                key = Key(self._namespace, name)
                live = await client.get(work.kind, key)
                await client.delete(work.kind, key, uid=uid_of(live))
        for work in self._works:

            async def is_empty(kind: Kind = work.kind) -> bool:
                return not (await client.list(kind, self._namespace)).items

            await _until(is_empty, _WAIT)

    def _run(self, command: Sequence[str]) -> str:
        node = f"{self._cluster.name}-control-plane"
        return self._docker.read(*(word.format(node) for word in command))

    def _look(self, fault: NodeFault) -> str:
        return self._run(fault.look) if fault.look else ""


async def run_kills(works: Sequence[Workload], namespace: str) -> list[Recovery]:
    """Kill each part once while operators work that are installed in a namespace.

    Raises:
        ToolError: A part could not be killed.
    """
    trial = SoakRun(works, namespace, up())
    recoveries = []
    for fault in KILLS:
        for recovery in await trial.run(fault):
            end = recovery.problem or f"all well after {recovery.seconds:.0f} s"
            print(f"{fault.name}: {recovery.operator}: {end}", flush=True)
            recoveries.append(recovery)
    return recoveries


async def _until(probe: Callable[[], Awaitable[bool]], limit: float) -> float | None:
    """Wait until a probe is true; errors count as not yet. Returns the seconds, None for never."""
    started = time.monotonic()
    while time.monotonic() - started < limit:
        try:
            if await probe():
                return time.monotonic() - started
        except (SlipwayError, OSError):
            pass  # The API server is what was killed, or is on the node that was.
        await asyncio.sleep(_POLL)
    return None


def _operator_of(pod: Manifest) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get("app.kubernetes.io/name", ""))


def _is_ready(pod: Manifest) -> bool:
    ready = find_condition(pod, "Ready") or {}
    return ready.get("status") == "True" and "deletionTimestamp" not in pod["metadata"]
