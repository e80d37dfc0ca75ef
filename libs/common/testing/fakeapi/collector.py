"""The controllers that the API server relies on: garbage, namespaces, storage in use.

envtest has none of them. They run in the background here, and can be paused to test what an
operator does while they lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.deletion import DeleteOptions, Deleter
from libs.common.testing.fakeapi.identity import is_finished
from libs.common.testing.fakeapi.registry import Registry, Table
from libs.common.testing.fakeapi.statuses import StatusError
from libs.common.testing.fakeapi.store import Change, Record, Store
from libs.common.testing.fakeapi.writer import NAMESPACES

type Place = tuple[Table, Key]

_PODS: Table = ("", "pods")
_CLAIMS: Table = ("", "persistentvolumeclaims")
_PROTECTED: dict[Table, str] = {
    _CLAIMS: "kubernetes.io/pvc-protection",
    ("", "persistentvolumes"): "kubernetes.io/pv-protection",
}


class Collector:
    """A garbage collector for objects without owners and for namespaces that are being deleted."""

    def __init__(self, store: Store, registry: Registry, deleter: Deleter) -> None:
        """Listen to the store; nothing happens before `start` or `run`."""
        self._store = store
        self._registry = registry
        self._deleter = deleter
        self._paused = False
        self._dirty: dict[Place, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        store.listeners.append(self._notice)

    def start(self) -> None:
        """Run in the background of the current event loop."""
        self._task = asyncio.create_task(self._loop(), name="fakeapi-collector")

    async def stop(self) -> None:
        """End the background task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def pause(self) -> None:
        """Stop collecting; what happens meanwhile is looked at after `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Collect again."""
        self._paused = False
        self._wake.set()

    def run(self) -> None:
        """Collect now, until nothing is left to do; works while paused too."""
        while self._dirty:
            place = next(iter(self._dirty))
            del self._dirty[place]
            self._process(place)

    async def _loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._paused:
                self.run()

    def _notice(self, change: Change) -> None:
        place = (change.table, change.key)
        metadata = change.record.obj["metadata"]
        if change.type == "DELETED":
            for dependent in self._store.dependents(change.record.uid):
                self._dirty[dependent] = None
            for reference in metadata.get("ownerReferences") or ():
                # An owner in foreground deletion may have waited for this one.
                if owner := self._store.locate(reference["uid"]):
                    self._dirty[owner] = None
            self._notice_emptied(change.key.namespace)
            if change.table == _PODS:
                for name in _claims_of(change.record.obj):
                    self._dirty[(_CLAIMS, Key(change.key.namespace, name))] = None
        elif metadata.get("ownerReferences") or metadata.get("deletionTimestamp"):
            self._dirty[place] = None
        if self._dirty and not self._paused:
            self._wake.set()

    def _notice_emptied(self, namespace: str) -> None:
        record = self._store.get(NAMESPACES, Key("", namespace)) if namespace else None
        if record is not None and record.obj["metadata"].get("deletionTimestamp"):
            self._dirty[(NAMESPACES, Key("", namespace))] = None

    def _process(self, place: Place) -> None:
        record = self._store.get(*place)
        if record is None:
            return
        metadata = record.obj["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if metadata.get("deletionTimestamp"):
            if place[0] == NAMESPACES:
                self._empty_namespace(place, record)
            elif place[0] in _PROTECTED and _PROTECTED[place[0]] in finalizers:
                self._unprotect(place, record)
            elif "orphan" in finalizers:
                self._orphan(place, record)
            elif "foregroundDeletion" in finalizers:
                self._foreground(place, record)
        elif metadata.get("ownerReferences"):
            self._collect(place, record)

    def _unprotect(self, place: Place, record: Record) -> None:
        """Let go of a claim that no pod uses, or a volume that no claim is bound to."""
        if place[0] == _CLAIMS:
            used = any(
                _uses(pod.obj, place[1].name)
                for key, pod in self._store.table(_PODS).items()
                if key.namespace == place[1].namespace
            )
        else:
            used = (record.obj.get("status") or {}).get("phase") == "Bound"
        if not used:
            self._remove_finalizer(place, _PROTECTED[place[0]])

    def _collect(self, place: Place, record: Record) -> None:
        references = record.obj["metadata"]["ownerReferences"]
        solid, waiting = [], False
        for reference in references:
            owner = self._owner(place, reference)
            if owner is None:
                continue
            metadata = owner.obj["metadata"]
            if metadata.get("deletionTimestamp") and "foregroundDeletion" in (
                metadata.get("finalizers") or ()
            ):
                waiting = True
                continue
            solid.append(reference)
        if not solid:
            self._delete(place, record, "Foreground" if waiting else "Background")
        elif len(solid) != len(references):
            self._edit(place, record, lambda m: m.update(ownerReferences=solid))

    def _owner(self, place: Place, reference: Manifest) -> Record | None:
        found = self._store.locate(reference["uid"])
        if found is None:
            return None
        record = self._store.get(*found)
        if record is None or record.obj["kind"] != reference["kind"]:
            return None
        # An owner must be cluster-scoped or in the same namespace.
        if found[1].namespace not in ("", place[1].namespace):
            return None
        return record if found[1].name == reference["name"] else None

    def _delete(self, place: Place, record: Record, propagation: str) -> None:
        blocked = any(
            reference.get("blockOwnerDeletion")
            for reference in record.obj["metadata"].get("ownerReferences") or ()
        )
        has_dependents = bool(self._store.dependents(record.uid))
        policy = propagation if blocked and has_dependents else "Background"
        self._call(place, DeleteOptions(uid=record.uid, propagation=policy))

    def _call(self, place: Place, options: DeleteOptions) -> None:
        target = self._target(place)
        if target is not None:
            try:
                self._deleter.delete(target, options)
            except StatusError as error:
                if error.code != 404:
                    raise

    def _target(self, place: Place) -> Target | None:
        resource = self._registry.at(place[0])
        if resource is None:
            return None
        return Target(resource, next(iter(resource.versions.values())), place[1])

    def _orphan(self, place: Place, record: Record) -> None:
        for dependent in self._store.dependents(record.uid):
            child = self._store.get(*dependent)
            if child is not None:
                self._edit(dependent, child, lambda m: _drop_owner(m, record.uid))
        self._remove_finalizer(place, "orphan")

    def _foreground(self, place: Place, record: Record) -> None:
        blocking = False
        for dependent in self._store.dependents(record.uid):
            child = self._store.get(*dependent)
            if child is None:
                continue
            if not child.obj["metadata"].get("deletionTimestamp"):
                self._collect(dependent, child)
            if self._store.get(*dependent) is not None:
                blocking = blocking or _blocks(child, record.uid)
        if not blocking:
            self._remove_finalizer(place, "foregroundDeletion")

    def _empty_namespace(self, place: Place, record: Record) -> None:
        namespace = place[1].name
        left = False
        for table in self._store.tables():
            for key in [k for k in self._store.table(table) if k.namespace == namespace]:
                self._call((table, key), DeleteOptions(propagation="Background"))
                left = left or self._store.get(table, key) is not None
        if left:
            return
        current = self._store.get(*place)
        # With finalizers of its own it stays, empty, until their owners let go.
        if current is not None and current.obj.get("spec"):
            obj = {**current.obj, "metadata": dict(current.obj["metadata"]), "spec": {}}
            self._put(place, obj)

    def _remove_finalizer(self, place: Place, name: str) -> None:
        record = self._store.get(*place)
        if record is not None:
            kept = [f for f in record.obj["metadata"].get("finalizers") or () if f != name]
            self._edit(place, record, lambda m: m.update(finalizers=kept))

    def _edit(self, place: Place, record: Record, change: Callable[[Manifest], None]) -> None:
        metadata = dict(record.obj["metadata"])
        change(metadata)
        for name in ("finalizers", "ownerReferences"):
            if not metadata.get(name, True):
                del metadata[name]
        self._put(place, {**record.obj, "metadata": metadata})

    def _put(self, place: Place, obj: Manifest) -> None:
        if is_finished(obj):
            self._store.delete(*place)
        else:
            self._store.put(*place, obj)


def _drop_owner(metadata: Manifest, uid: str) -> None:
    metadata["ownerReferences"] = [
        r for r in metadata.get("ownerReferences") or () if r["uid"] != uid
    ]


def _claims_of(pod: Manifest) -> list[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    claims = [volume.get("persistentVolumeClaim") for volume in volumes]
    return [claim["claimName"] for claim in claims if claim]


def _uses(pod: Manifest, claim: str) -> bool:
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not finished and claim in _claims_of(pod)


def _blocks(child: Record, uid: str) -> bool:
    return any(
        r["uid"] == uid and r.get("blockOwnerDeletion")
        for r in child.obj["metadata"].get("ownerReferences") or ()
    )
