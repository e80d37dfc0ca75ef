"""World: what the rest of a cluster does: kubelet, volume binder and garbage collector.

It acts when it is told to, which is when the operator rests, so that runs of a workload are alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from libs.common.client import Client
from libs.common.errors import Conflict, Invalid, NotFound
from libs.common.kinds import POD, PVC, Key, Kind, Manifest, is_deleting, key_of, uid_of
from tools.sweep.recorder import Book

_NODE: Final = "sweep-node"
_PROTECTION: Final = "kubernetes.io/pvc-protection"
_TIME: Final = "2026-01-31T12:00:00Z"


class World:
    """Act for the cluster in one namespace.

    Args:
        client: Connection with all rights.
        book: What is there, kept by the recorder.
        kinds: Kinds of the namespace whose garbage is collected.
    """

    def __init__(self, client: Client, book: Book, kinds: tuple[Kind, ...]) -> None:
        """Start with nothing done."""
        self._client = client
        self._book = book
        self._kinds = kinds

    @property
    def pending(self) -> bool:
        """Whether there is something to do."""
        return next(self._due(), None) is not None

    async def act(self) -> None:
        """Do everything that is due now; what was due already is no harm to do again."""
        for kind, manifest in list(self._due()):
            with contextlib.suppress(NotFound, Conflict, Invalid):
                if kind is POD:
                    await self._tend_pod(manifest)
                elif kind is PVC and not self._is_garbage(manifest):
                    await self._tend_claim(manifest)
                else:
                    await self._delete(kind, manifest)

    def _due(self) -> Iterator[tuple[Kind, Manifest]]:
        for kind in self._kinds:
            for manifest in self._book.list(kind):
                if (
                    (self._is_garbage(manifest) and not is_deleting(manifest))
                    or (kind is POD and _needs_kubelet(manifest))
                    or (kind is PVC and _needs_binder(manifest))
                ):
                    yield kind, manifest

    async def _tend_pod(self, pod: Manifest) -> None:
        key = key_of(pod)
        if is_deleting(pod) or self._is_garbage(pod):
            await self._delete(POD, pod)
            return
        if not pod["spec"].get("nodeName"):
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": key.name, "namespace": key.namespace},
                "target": {"apiVersion": "v1", "kind": "Node", "name": _NODE},
            }
            path = POD.path(key.namespace, key.name, "binding")
            await self._client.raw("POST", path, binding)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": _TIME}
        status = {"phase": "Running", "conditions": [ready]}
        await self._client.patch(POD, key, {"status": status}, subresource="status")

    async def _tend_claim(self, claim: Manifest) -> None:
        key = key_of(claim)
        if is_deleting(claim):
            kept = [each for each in claim["metadata"]["finalizers"] if each != _PROTECTION]
            await self._client.patch(PVC, key, {"metadata": {"finalizers": kept or None}})
            return
        if not claim["spec"].get("volumeName"):
            await self._client.patch(PVC, key, {"spec": {"volumeName": f"pv-{key.name}"}})
        status = {"phase": "Bound", "capacity": claim["spec"]["resources"]["requests"]}
        await self._client.patch(PVC, key, {"status": status}, subresource="status")

    async def _delete(self, kind: Kind, manifest: Manifest) -> None:
        grace = 0 if kind is POD else None
        key: Key = key_of(manifest)
        await self._client.delete(kind, key, uid=uid_of(manifest), grace_seconds=grace)

    def _is_garbage(self, manifest: Manifest) -> bool:
        owners = manifest["metadata"].get("ownerReferences") or ()
        present = self._book.uids()
        return bool(owners) and not any(owner["uid"] in present for owner in owners)


def _needs_kubelet(pod: Manifest) -> bool:
    return is_deleting(pod) or (pod.get("status") or {}).get("phase") != "Running"


def _needs_binder(claim: Manifest) -> bool:
    if is_deleting(claim):
        return _PROTECTION in (claim["metadata"].get("finalizers") or ())
    held = (claim.get("status") or {}).get("capacity") or {}
    return bool(held.get("storage") != claim["spec"]["resources"]["requests"]["storage"])
