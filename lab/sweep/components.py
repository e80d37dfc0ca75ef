"""Stand-ins for the rest of a cluster: kubelet, volume binder, garbage collector and others.

It only acts when it is called, while the operator is idle, so that runs of a workload are
reproducible.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lab.sweep.recorder import NamespaceRecord
from libs.common.client import Client
from libs.common.errors import Conflict, Invalid, NotFound
from libs.common.kinds import POD, PVC, Key, Kind, Manifest, is_deleting, key_of, uid_of

_NODE: Final = "sweep-node"
_PROTECTION: Final = "kubernetes.io/pvc-protection"
_TIME: Final = "2026-01-31T12:00:00Z"


@dataclass(frozen=True, slots=True)
class Component:
    """A stand-in for the component of a cluster that handles one kind.

    Attributes:
        kind: Kind that it handles.
        needs: Returns whether an object waits for it, given the other existing objects.
        act: Performs the action that the object waits for.
    """

    kind: Kind
    needs: Callable[[Manifest, NamespaceRecord], bool]
    act: Callable[[Client, Manifest, NamespaceRecord], Awaitable[None]]


class ClusterComponents:
    """The stand-ins for the components of a cluster, in one namespace.

    Args:
        client: Connection with all rights.
        record: Existing objects, from the recorder.
        kinds: Kinds of the namespace whose garbage is collected.
        components: Components other than the garbage collector.
        owners: Kinds that own objects of these kinds.
    """

    def __init__(
        self,
        client: Client,
        record: NamespaceRecord,
        kinds: tuple[Kind, ...],
        components: Sequence[Component],
        owners: tuple[Kind, ...] = (),
    ) -> None:
        """Initialize; `act` acts."""
        self._client = client
        self._record = record
        self._kinds = kinds
        self._owners = {(kind.api_version, kind.kind): kind for kind in (*kinds, *owners)}
        self._components = {component.kind: component for component in components}

    @property
    def pending(self) -> bool:
        """Whether an object waits for a component."""
        return next(self._due(), None) is not None

    async def act(self) -> None:
        """Perform all actions that are due; repeating an action does no harm."""
        for kind, manifest in list(self._due()):
            with contextlib.suppress(NotFound, Conflict, Invalid):
                if self._is_garbage(manifest) and not is_deleting(manifest):
                    await self._collect(kind, manifest)
                else:
                    await self._components[kind].act(self._client, manifest, self._record)

    def _due(self) -> Iterator[tuple[Kind, Manifest]]:
        for kind in self._kinds:
            component = self._components.get(kind)
            for manifest in self._record.list(kind):
                is_garbage = self._is_garbage(manifest) and not is_deleting(manifest)
                if is_garbage or (
                    component is not None and component.needs(manifest, self._record)
                ):
                    yield kind, manifest

    async def _collect(self, kind: Kind, manifest: Manifest) -> None:
        """Delete an object without existing owners, after verifying this at the API server.

        The record gets each kind from a separate watch. It may already lack an owner, and not know
        yet that the object was released before.
        """
        live = await self._client.get(kind, key_of(manifest))
        if uid_of(live) != uid_of(manifest) or not self._is_garbage(live):
            return
        for owner in live["metadata"]["ownerReferences"]:
            owner_kind = self._owners.get((owner["apiVersion"], owner["kind"]))
            if owner_kind is not None and await self._is_there(owner_kind, live, owner):
                return
        version = live["metadata"]["resourceVersion"]
        await delete_live(self._client, kind, live, resource_version=version)

    async def _is_there(self, kind: Kind, owned: Manifest, owner: Manifest) -> bool:
        namespace = key_of(owned).namespace if kind.namespaced else ""
        try:
            live = await self._client.get(kind, Key(namespace, owner["name"]))
        except NotFound:
            return False
        return uid_of(live) == str(owner["uid"])

    def _is_garbage(self, manifest: Manifest) -> bool:
        owners = manifest["metadata"].get("ownerReferences") or ()
        present = self._record.uids()
        return bool(owners) and not any(owner["uid"] in present for owner in owners)


async def delete_live(
    client: Client, kind: Kind, manifest: Manifest, *, resource_version: str = ""
) -> None:
    """Delete an object, or only the given version of it; a pod is deleted without grace period."""
    grace = 0 if kind is POD else None
    await client.delete(
        kind,
        key_of(manifest),
        uid=uid_of(manifest),
        resource_version=resource_version,
        grace_seconds=grace,
    )


async def _tend_pod(client: Client, pod: Manifest, _: NamespaceRecord) -> None:
    key = key_of(pod)
    if is_deleting(pod):
        await delete_live(client, POD, pod)
        return
    if not pod["spec"].get("nodeName"):
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": _NODE},
        }
        await client.raw("POST", POD.path(key.namespace, key.name, "binding"), binding)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": _TIME}
    status = {"phase": "Running", "conditions": [ready]}
    await client.patch(POD, key, {"status": status}, subresource="status")


async def _tend_claim(client: Client, claim: Manifest, _: NamespaceRecord) -> None:
    key = key_of(claim)
    if is_deleting(claim):
        kept = [each for each in claim["metadata"]["finalizers"] if each != _PROTECTION]
        metadata = {"uid": uid_of(claim), "finalizers": kept or None}
        await client.patch(PVC, key, {"metadata": metadata})
        return
    if not claim["spec"].get("volumeName"):
        await client.patch(PVC, key, {"spec": {"volumeName": f"pv-{key.name}"}})
    status = {"phase": "Bound", "capacity": claim["spec"]["resources"]["requests"]}
    await client.patch(PVC, key, {"status": status}, subresource="status")


def _needs_kubelet(pod: Manifest, _: NamespaceRecord) -> bool:
    return is_deleting(pod) or (pod.get("status") or {}).get("phase") != "Running"


def _needs_binder(claim: Manifest, _: NamespaceRecord) -> bool:
    if is_deleting(claim):
        return _PROTECTION in (claim["metadata"].get("finalizers") or ())
    held = (claim.get("status") or {}).get("capacity") or {}
    return bool(held.get("storage") != claim["spec"]["resources"]["requests"]["storage"])


KUBELET: Final = Component(POD, _needs_kubelet, _tend_pod)
"""Binds pods, starts them and completes their deletion."""
BINDER: Final = Component(PVC, _needs_binder, _tend_claim)
"""Binds claims, expands them and completes their deletion."""
EVERYBODY: Final = (KUBELET, BINDER)
"""The default components of a trial."""
