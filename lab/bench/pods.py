"""What the pod benchmarks do: make a set, wait for its pods, kill one, look who replaces it."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from libs.common.client import Client
from libs.common.client_requests import WatchEvent
from libs.common.kinds import NAMESPACE, POD, REPLICA_SET, Key, Kind, Manifest, build_object, uid_of
from operators.podset.controller import PODSET
from operators.podset.resources import DEFAULT_IMAGE, build_default_spec

_POLL: Final = 0.01
_TIMEOUT: Final = 240.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A controller of pods, and how to request them from it.

    Attributes:
        name: Name in tables.
        kind: Kind of the set.
        build: Builds a set of a name and a number of replicas.
        pid: Gives the process id of the controller.
    """

    name: str
    kind: Kind
    build: Callable[[str, str, int], Manifest]
    pid: Callable[[], int]


def build_podset(namespace: str, name: str, replicas: int) -> Manifest:
    """Build a PodSet with the default pod."""
    return build_object(PODSET, name, namespace, spec={"replicas": replicas})


def build_replica_set(namespace: str, name: str, replicas: int) -> Manifest:
    """Build a ReplicaSet with the pod template of the default PodSet."""
    labels = {"app": name, "version": "v0.1"}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": build_default_spec(DEFAULT_IMAGE)},
    }
    return build_object(REPLICA_SET, name, namespace, spec=spec)


async def make_namespace(client: Client, name: str) -> str:
    """Make a namespace and return its name."""
    manifest = build_object(NAMESPACE, name)
    await client.create(NAMESPACE, manifest)
    return name


class PodCounter:
    """Counts the pods of a namespace in etcd.

    A list of the API server costs it a millisecond or more: asked each hundredth of a second it
    would slow down what is measured. A count of etcd is a look into its index.

    Args:
        etcd: URL of etcd.
        http: Session that asks it.
    """

    def __init__(self, etcd: str, http: aiohttp.ClientSession) -> None:
        """Keep both."""
        self._url = f"{etcd}/v3/kv/range"
        self._http = http

    async def count(self, namespace: str) -> int:
        """Count the pods of a namespace."""
        first, last = (
            base64.b64encode(f"/registry/pods/{namespace}{end}".encode()).decode()
            for end in ("/", "0")
        )
        query = {"key": first, "range_end": last, "count_only": True}
        async with self._http.post(self._url, json=query) as response:
            response.raise_for_status()
            return int((await response.json()).get("count", 0))

    async def wait(self, namespace: str, count: int) -> float:
        """Wait until a namespace has so many pods, and return the moment, on the monotonic clock.

        Raises:
            TimeoutError: It never had.
        """
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            if await self.count(namespace) == count:
                return time.monotonic()
            await asyncio.sleep(_POLL)
        raise TimeoutError(f"{namespace}: no {count} pods within {_TIMEOUT:.0f} s")


async def scale(client: Client, candidate: Candidate, key: Key, replicas: int) -> None:
    """Ask for another number of replicas."""
    await client.patch(candidate.kind, key, {"spec": {"replicas": replicas}})


class ReplacementBenchmark:
    """A benchmark that deletes the pods of a set one by one and measures their replacement.

    Use it as an async context manager: it watches the pods of the namespace meanwhile.

    Args:
        client: The user.
        namespace: Holds the set and nothing else.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        """Keep both."""
        self._client = client
        self._namespace = namespace
        self._alive: dict[str, str] = {}
        self._events: AsyncGenerator[WatchEvent]

    async def __aenter__(self) -> Self:
        """Look who is alive, and watch from there on."""
        listing = await self._client.list(POD, self._namespace)
        self._alive = {uid_of(pod): pod["metadata"]["name"] for pod in listing.items}
        version = listing.resource_version
        # Longer than any run: a watch that is opened again in between would be timed as well.
        self._events = self._client.watch(
            POD, self._namespace, resource_version=version, timeout_seconds=3600
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the watch."""
        await self._events.aclose()

    async def time_one(self) -> float:
        """Delete the pod that is there longest, and return the seconds until there is a new one."""
        uid, name = next(iter(self._alive.items()))
        del self._alive[uid]
        started = time.monotonic()
        await self._client.delete(POD, Key(self._namespace, name), uid=uid, grace_seconds=0)
        async for event in self._events:
            new = uid_of(event.object)
            if event.type == "ADDED" and new not in self._alive:
                self._alive[new] = event.object["metadata"]["name"]
                return time.monotonic() - started
        raise TimeoutError(f"{self._namespace}: the watch ended before {name} was replaced")
