"""The controller of CustomResourceDefinitions: what is posted is served."""

from __future__ import annotations

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi.registry import Registry, Table
from libs.common.testing.fakeapi.store import Change, Store
from libs.common.testing.fakeapi.writer import Writer

_CRDS: Table = ("apiextensions.k8s.io", "customresourcedefinitions")


class CrdController:
    """The controller that serves custom kinds and reports them in the status of their CRDs."""

    def __init__(self, store: Store, registry: Registry, writer: Writer) -> None:
        """Listen to the store; must be the last listener, as it writes itself."""
        self._store = store
        self._registry = registry
        self._writer = writer
        store.listeners.append(self._notice)

    def _notice(self, change: Change) -> None:
        if change.table != _CRDS:
            return
        crd = change.record.obj
        spec = crd["spec"]
        if change.type == "DELETED":
            table = (spec["group"], spec["names"]["plural"])
            for key in list(self._store.table(table)):
                self._store.delete(table, key)
            self._registry.remove(*table)
            return
        before = change.before.obj["spec"] if change.before else None
        if before != spec:
            self._registry.add_crd(crd)
        if "acceptedNames" not in (crd.get("status") or {}):
            self._establish(change.key, crd)

    def _establish(self, key: Key, crd: Manifest) -> None:
        now = self._writer.timestamp()
        reasons = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}
        status = {
            "acceptedNames": crd["spec"]["names"],
            "conditions": [
                {
                    "type": type_,
                    "status": "True",
                    "reason": reason,
                    "message": "",
                    "lastTransitionTime": now,
                }
                for type_, reason in reasons.items()
            ],
            "storedVersions": [v["name"] for v in crd["spec"]["versions"] if v.get("storage")],
        }
        obj = {**crd, "metadata": dict(crd["metadata"]), "status": status}
        self._store.put(_CRDS, key, obj)
