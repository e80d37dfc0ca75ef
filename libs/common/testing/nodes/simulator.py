"""`Nodes`: simulated nodes as a library, for any API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any, Final, Self

import structlog

from libs.common.client import Client
from libs.common.conditions import render_time
from libs.common.config import ConnectionConfig
from libs.common.errors import AlreadyExists, Conflict, Expired, NotFound, SlipwayError
from libs.common.kinds import (
    DEPLOYMENT,
    LEASE,
    NODE,
    POD,
    PV,
    PVC,
    REPLICA_SET,
    STORAGE_CLASS,
    Key,
    Kind,
    Manifest,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.reading import map_at, text_at
from libs.common.testing.nodes import pods as kubelet
from libs.common.testing.nodes import volumes, workloads
from libs.common.testing.nodes.timing import Timing
from libs.contracts.claims import SELECTED_NODE

log = structlog.get_logger(__name__)

_KINDS: Final = (NODE, POD, PVC, PV, STORAGE_CLASS)
_WORKLOADS: Final = (DEPLOYMENT, REPLICA_SET)
_RETRY: Final = 0.5
"""Seconds until a list or a failed step is repeated."""
type Step = Coroutine[Any, Any, object]
"""One or more requests that are due."""

_SCHEDULER: Final = "default-scheduler"
_LEASES: Final = "kube-node-lease"
_BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes"}


class Nodes:
    """Simulated nodes of one API server, for as long as the context is entered.

    Args:
        config: Connection to the API server, with all rights.
        count: How many nodes.
        timing: How long things take.
        controllers: Whether to play the controller manager as well: bind claims, run Deployments.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        count: int = 1,
        timing: Timing | None = None,
        controllers: bool = True,
    ) -> None:
        """Prepare; nothing is sent before the context is entered."""
        self._client = Client(config, user_agent="simulated-nodes")
        self._names = [f"simulated-{number + 1}" for number in range(count)]
        self._timing = timing or Timing()
        self._controllers = controllers
        self._objects: dict[Kind, dict[Key, Manifest]] = {
            kind: {} for kind in (*_KINDS, *(_WORKLOADS if controllers else ()))
        }
        self._since: dict[tuple[str, str], float] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Create the nodes and the class of their volumes, and begin to work."""
        for number, name in enumerate(self._names):
            await self._create(NODE, kubelet.build_node(name, number))
            status = kubelet.build_node_status(name, number, self._now())
            await self._patch(NODE, Key("", name), {"status": status}, "status")
            await self._patch(NODE, Key("", name), {"spec": {"taints": None}})
        await self._create(STORAGE_CLASS, volumes.build_class())
        self._tasks = [asyncio.create_task(self._follow(kind)) for kind in self._objects]
        self._tasks += [asyncio.create_task(self._work()), asyncio.create_task(self._beat())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; what is in the API server stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
        # Connections close with the next turns of the loop.
        for _turn in range(10):
            await asyncio.sleep(0)

    # What is there.

    async def _follow(self, kind: Kind) -> None:
        """Keep the objects of a kind up to date."""
        while True:
            try:
                listing = await self._client.list(kind)
                self._objects[kind] = {key_of(each): each for each in listing.items}
                self._wake.set()
                version = listing.resource_version
                while True:
                    events = self._client.watch(kind, resource_version=version)
                    async with contextlib.aclosing(events):
                        async for event in events:
                            version = event.object["metadata"]["resourceVersion"]
                            self._notice(kind, event.type, event.object)
            except Expired:
                continue
            except SlipwayError as err:
                log.debug("Listing again", kind=kind.kind, error=str(err))
                await asyncio.sleep(_RETRY)

    def _notice(self, kind: Kind, event: str, obj: Manifest) -> None:
        if event == "BOOKMARK":
            return
        if event == "DELETED":
            self._objects[kind].pop(key_of(obj), None)
        else:
            self._objects[kind][key_of(obj)] = obj
        self._wake.set()

    def _list(self, kind: Kind) -> list[Manifest]:
        return list(self._objects[kind].values())

    # What is to be done.

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            steps = deque(self._due())
            try:
                while steps:
                    await self._try(steps.popleft())
            finally:
                for step in steps:
                    step.close()

    async def _try(self, step: Step) -> None:
        try:
            await step
        except (NotFound, Conflict):
            pass  # Whatever changed meanwhile comes again by its watch.
        except SlipwayError as err:
            log.debug("Trying again", error=str(err))
            self._wake_later(_RETRY)

    def _due(self) -> Iterator[Step]:
        live = {uid_of(pod) for pod in self._list(POD)}
        self._since = {key: value for key, value in self._since.items() if key[0] in live}
        for pod in self._list(POD):
            yield from self._due_of_pod(pod)
        for claim in self._list(PVC):
            yield from self._due_of_claim(claim)
        for volume in self._list(PV):
            yield from self._due_of_volume(volume)
        if self._controllers:
            yield from self._due_of_workloads()

    def _due_of_pod(self, pod: Manifest) -> Iterator[Step]:
        key, place = key_of(pod), text_at(pod, "spec", "nodeName")
        if not place:
            spec = map_at(pod, "spec")
            ours = spec.get("schedulerName", _SCHEDULER) == _SCHEDULER
            if ours and not is_deleting(pod) and not spec.get("schedulingGates"):
                yield from self._schedule(pod)
        elif place in self._names and is_deleting(pod):
            if self._has_passed(pod, "stop", kubelet.grace_of(pod, self._timing.stop)):
                yield self._client.delete(POD, key, uid=uid_of(pod), grace_seconds=0)
        elif place in self._names and not kubelet.is_finished(pod):
            status = self._status_of(pod, place)
            if status != map_at(pod, "status"):
                # The kubelet owns the status: the next step sees it before its watch does.
                self._objects[POD][key] = {**pod, "status": status}
                yield self._patch(POD, key, {"status": status}, "status")

    def _status_of(self, pod: Manifest, place: str) -> Manifest:
        started = text_at(pod, "status", "phase") == "Running"
        started = started or self._has_passed(pod, "start", self._timing.start)
        number = self._names.index(place)
        return kubelet.build_status(
            pod,
            self._now(),
            address=text_at(pod, "status", "podIP") or self._find_address(number),
            host=kubelet.host_address(number),
            started=started,
        )

    def _find_address(self, number: int) -> str:
        taken = {text_at(pod, "status", "podIP") for pod in self._list(POD)}
        hosts = (f"10.244.{number}.{host}" for host in range(2, 255))
        return next((host for host in hosts if host not in taken), "")

    def _has_passed(self, pod: Manifest, step: str, seconds: float) -> bool:
        """Return whether a step has lasted for some seconds; if not, wake up then."""
        now = asyncio.get_running_loop().time()
        left = self._since.setdefault((uid_of(pod), step), now) + seconds - now
        if left > 0:
            self._wake_later(left)
        return left <= 0

    def _wake_later(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._wake.set)

    def _schedule(self, pod: Manifest) -> Iterator[Step]:
        key = key_of(pod)
        missing = ""
        for name in volumes.claims_of(pod):
            claim = self._objects[PVC].get(Key(key.namespace, name))
            if claim is None:
                missing = f'persistentvolumeclaim "{name}" not found'
            elif text_at(claim, "status", "phase") != "Bound":
                storage_class = volumes.find_class(claim, self._list(STORAGE_CLASS))
                if storage_class and volumes.waits_for_consumer(claim, storage_class):
                    notes = {"annotations": {SELECTED_NODE: self._names[0]}}
                    yield self._patch(PVC, key_of(claim), {"metadata": notes})
                missing = missing or "pod has unbound immediate PersistentVolumeClaims"
        nodes = [node for node in self._list(NODE) if key_of(node).name in self._names]
        place = "" if missing else kubelet.pick_node(pod, nodes, self._list(POD))
        if place:
            self._objects[POD][key] = {**pod, "spec": {**pod["spec"], "nodeName": place}}
            yield self._bind(key, place)
            return
        why = missing or "no node matches its node selector, or all are cordoned"
        text = f"0/{len(nodes)} nodes are available: {why}"
        status = kubelet.unschedulable_status(pod, text, self._now())
        if status != map_at(pod, "status"):
            yield self._patch(POD, key, {"status": status}, "status")

    async def _bind(self, key: Key, place: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": place},
        }
        await self._client.raw("POST", POD.path(key.namespace, key.name, "binding"), binding)

    def _due_of_claim(self, claim: Manifest) -> Iterator[Step]:
        storage_class = volumes.find_class(claim, self._list(STORAGE_CLASS))
        if storage_class is None or is_deleting(claim):
            return
        key, name = key_of(claim), volumes.volume_name(claim)
        if text_at(claim, "status", "phase") == "Bound":
            if volumes.needs_growth(claim):
                status = volumes.bound_status(claim)
                yield self._patch(PV, Key("", name), {"spec": {"capacity": status["capacity"]}})
                yield self._patch(PVC, key, {"status": status}, "status")
            return
        if volumes.waits_for_consumer(claim, storage_class):
            return
        if Key("", name) not in self._objects[PV]:
            yield self._create(PV, volumes.build_volume(claim, storage_class))
        if self._controllers:
            spec = {"volumeName": name, "storageClassName": key_of(storage_class).name}
            yield self._patch(PVC, key, {"metadata": {"annotations": _BOUND}, "spec": spec})
            yield self._patch(PVC, key, {"status": volumes.bound_status(claim)}, "status")
            bound = {"status": {"phase": "Bound"}}
            yield self._patch(PV, Key("", name), bound, "status")

    def _due_of_volume(self, volume: Manifest) -> Iterator[Step]:
        if not volumes.is_ours(volume) or is_deleting(volume):
            return
        reference = map_at(volume, "spec", "claimRef")
        owner = Key(text_at(reference, "namespace"), text_at(reference, "name"))
        claim = self._objects[PVC].get(owner)
        if claim is not None and uid_of(claim) == text_at(reference, "uid"):
            return
        released = text_at(volume, "status", "phase") == "Released"
        if not released and self._controllers and text_at(volume, "status", "phase") == "Bound":
            yield self._patch(PV, key_of(volume), {"status": {"phase": "Released"}}, "status")
        if released and text_at(volume, "spec", "persistentVolumeReclaimPolicy") == "Delete":
            yield self._client.delete(PV, key_of(volume), uid=uid_of(volume))

    def _due_of_workloads(self) -> Iterator[Step]:
        now, pods = self._now(), self._list(POD)
        for owner in self._list(REPLICA_SET):
            yield from map(self._perform, workloads.plan_replica_set(owner, pods))
        sets = self._list(REPLICA_SET)
        for owner in self._list(DEPLOYMENT):
            yield from map(self._perform, workloads.plan_deployment(owner, sets, now))

    async def _perform(self, action: workloads.Action) -> None:
        match action:
            case workloads.Create(kind, manifest):
                await self._create(kind, manifest)
            case workloads.Delete(kind, manifest):
                await self._client.delete(kind, key_of(manifest), uid=uid_of(manifest))
            case workloads.Patch(kind, key, change, subresource):
                await self._patch(kind, key, change, subresource)

    # Requests.

    async def _beat(self) -> None:
        """Renew the Lease of each node, as a kubelet does."""
        while True:
            for name in self._names:
                moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": moment}
                metadata = {"name": name, "namespace": _LEASES}
                lease: Manifest = {"metadata": metadata, "spec": spec}
                try:
                    await self._client.patch(LEASE, Key(_LEASES, name), lease)
                except NotFound:
                    with contextlib.suppress(SlipwayError):
                        namespace = {"metadata": {"name": _LEASES}}
                        await self._client.raw("POST", "/api/v1/namespaces", namespace)
                    with contextlib.suppress(SlipwayError):
                        await self._client.create(LEASE, lease)
                except SlipwayError as err:
                    log.debug("Not renewed", node=name, error=str(err))
            await asyncio.sleep(self._timing.heartbeat)

    async def _create(self, kind: Kind, manifest: Manifest) -> None:
        with contextlib.suppress(AlreadyExists):
            await self._client.create(kind, manifest)

    async def _patch(self, kind: Kind, key: Key, change: Manifest, subresource: str = "") -> None:
        await self._client.patch(kind, key, change, subresource=subresource)

    def _now(self) -> str:
        return render_time(datetime.now(UTC))
