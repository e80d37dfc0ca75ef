"""What the users of an operator run, and what must not change during an upgrade."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from libs.common.errors import NotFound
from libs.common.kinds import ENDPOINT_SLICE, POD, SERVICE, Key, Kind, Manifest, build_object
from tests.e2e.cluster import Cluster, build_busybox, eventually
from tools.cluster.kind_cluster import KindCluster

FIRST: Final = "first"
"""Name of the objects that exist before the first upgrade."""


_REQUEST: Final = inspect.cleandoc(r"""
    while true; do
      response=$(printf 'GET {path} HTTP/1.0\r\n\r\n' | nc -w 10 {address} {port} 2>&1)
      case "$response" in *"{expected}"*) echo ok;; *) echo "failed: $response";; esac
      sleep 1
    done
""")


def build_client(name: str, address: str, port: int, path: str, expected: str) -> Manifest:
    """Build a pod that requests a page every second and logs whether it has the expected text."""
    command = _REQUEST.format(path=path, address=address, port=port, expected=expected)
    return build_object(POD, name, spec=build_busybox("sh", "-c", command))


@dataclass(frozen=True)
class Place:
    """Where an operator and its users are.

    Attributes:
        cluster: The cluster.
        kind_cluster: The same one, to load images.
        namespace: Namespace of the operator and of its users.
    """

    cluster: Cluster
    kind_cluster: KindCluster
    namespace: str

    def key(self, name: str) -> Key:
        """Return the key of an object in the namespace."""
        return Key(self.namespace, name)

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create an object in the namespace, or in the cluster if its kind has no namespaces."""
        if kind.namespaced:
            manifest["metadata"]["namespace"] = self.namespace
        return await self.cluster.client.create(kind, manifest)

    async def delete(self, kind: Kind, name: str) -> None:
        """Delete an object if it exists, and do not wait."""
        with suppress(NotFound):
            await self.cluster.delete(kind, self.key(name) if kind.namespaced else Key("", name))

    async def find_names(self, kind: Kind) -> list[str]:
        """Return the names of objects; objects without a namespace have the name of this one."""
        namespace = self.namespace if kind.namespaced else ""
        names = [
            item["metadata"]["name"]
            for item in (await self.cluster.client.list(kind, namespace)).items
        ]
        return names if kind.namespaced else [name for name in names if name == self.namespace]

    async def wait_running(self, name: str) -> Manifest:
        """Wait until all containers of a pod are ready, and return the pod."""
        pod: Manifest = {}

        async def runs() -> bool:
            pod.update(await self.cluster.client.get(POD, self.key(name)))
            statuses = pod.get("status", {}).get("containerStatuses", ())
            return bool(statuses) and all(one["ready"] for one in statuses)

        await eventually(runs, f"pod {name} runs")
        return pod

    async def check_client(self, name: str) -> None:
        """Check that no request of a client failed, from its start until now."""
        before = len(await self.read_log(name))

        async def has_requested() -> bool:
            return len(await self.read_log(name)) > before + 1

        await eventually(has_requested, f"{name} requests")
        lines = await self.read_log(name)
        failed = [(number, line) for number, line in enumerate(lines) if line != "ok"]
        assert not failed, f"requests of {len(lines)} failed: {failed[:20]}"

    async def read_log(self, name: str) -> list[str]:
        """Return the lines that a pod has logged."""
        text = await self.cluster.kubectl_run(self.namespace, "logs", name, "--tail", "-1")
        return text.splitlines()


class Users(ABC):
    """The users of one operator: an entry in the table of the test.

    Attributes:
        own_kinds: Kinds of the operator.
        kinds: Kinds of objects of the namespace that must be neither replaced nor restarted.
        values: Values of the chart, of both releases.
    """

    own_kinds: ClassVar[tuple[Kind, ...]]
    kinds: ClassVar[tuple[Kind, ...]]
    values: ClassVar[Mapping[str, object]] = {}

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def build(self, name: str) -> tuple[Kind, Manifest]:
        """Build an object with few children, such as a busy namespace creates all the time."""

    @abstractmethod
    async def create(self) -> None:
        """Create what exists before the first upgrade."""

    @abstractmethod
    async def wait_ready(self) -> None:
        """Wait until everything that exists before the first upgrade works."""

    async def check(self) -> None:  # noqa: B027  # Most users need no more than unchanged objects.
        """Check that what was created works, and has worked all the time."""

    async def close(self) -> None:
        """Delete the objects of the operator, and do not wait."""
        for kind in self.own_kinds:
            for name in await self.place.find_names(kind):
                await self.place.delete(kind, name)

    async def wait_closed(self) -> None:
        """Wait until the operator has released its objects."""
        for kind in self.own_kinds:

            async def is_gone(kind: Kind = kind) -> bool:
                names = await self.place.find_names(kind)
                assert not names, names
                return True

            await eventually(is_gone, f"no {kind.kind} exists")

    def show(self, kind: Kind, manifest: Manifest) -> object:
        """Return the parts of an object, in addition to its UID, that must not change."""
        if kind is POD:
            return _show_pod(manifest)
        if kind is SERVICE:
            spec = manifest["spec"]
            return {name: spec.get(name) for name in ("clusterIP", "externalIPs", "selector")}
        if kind is ENDPOINT_SLICE:
            return [(each["addresses"], each["conditions"]) for each in manifest["endpoints"] or ()]
        return None

    async def snapshot(self) -> dict[str, Any]:
        """Return what must not change, by kind and name."""
        found: dict[str, Any] = {}
        for kind in self.kinds:
            items = (await self.place.cluster.client.list(kind, self.place.namespace)).items
            for item in items:
                metadata = item["metadata"]
                labels = metadata.get("labels", {})
                if labels.get("app.kubernetes.io/part-of") == "slipway":
                    continue  # The operators are replaced.
                if labels.get("owner") == "helm":
                    continue  # The record of a release.
                name = f"{kind.kind}/{metadata['name']}"
                found[name] = (metadata["uid"], self.show(kind, item))
        return found

    async def wait_observed(self, name: str) -> None:
        """Wait until the operator has reported on an object from `build`."""
        kind, _ = self.build(name)

        async def is_observed() -> bool:
            held = await self.place.cluster.client.get(kind, self.place.key(name))
            status = held.get("status") or {}
            observed = status.get("observedGeneration") == held["metadata"]["generation"]
            return bool(status.get("conditions")) and observed

        await eventually(is_observed, f"{kind.kind} {name} is observed")


def _show_pod(pod: Manifest) -> object:
    """Return the containers of a pod with their restarts, and the injectors that were added."""
    status = pod.get("status", {})
    containers = status.get("containerStatuses", ())
    injectors = pod["spec"].get("ephemeralContainers", ())
    return (
        [(one["restartCount"], one.get("containerID")) for one in containers],
        [one["name"] for one in injectors],
    )
