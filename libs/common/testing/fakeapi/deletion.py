"""Delete objects: preconditions, grace periods, finalizers, propagation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.identity import is_finished
from libs.common.testing.fakeapi.statuses import (
    Cause,
    bad_request,
    failed_precondition,
    invalid_options,
    not_found,
    success,
)
from libs.common.testing.fakeapi.store import Record
from libs.common.testing.fakeapi.writer import NAMESPACES, Writer

type Termination = Literal["scheduled", "always", "never"]
"""Which pods stay Terminating: those bound to a node (as the server does), all, or none."""

_DEFAULT_GRACE_SECONDS = 30
_RETURNS_OBJECT = frozenset(
    {
        "pods",
        "services",
        "serviceaccounts",
        "persistentvolumes",
        "persistentvolumeclaims",
        "podtemplates",
        "resourcequotas",
        "limitranges",
        "storageclasses",
        "csidrivers",
        "csinodes",
        "volumeattachments",
    }
)
"""Resources whose deletion returns the object even if it was deleted immediately."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Carry the options of a deletion, from the body or the query.

    Attributes:
        uid: UID that the object must have; empty for any.
        version: Resource version that the object must have; empty for any.
        propagation: `Background`, `Foreground`, `Orphan`, or empty for the default.
        grace_seconds: Grace period asked for, or None for the default.
    """

    uid: str = ""
    version: str = ""
    propagation: str = ""
    grace_seconds: int | None = None
    dry_run: bool = False


def parse_delete_options(body: Any, query: Mapping[str, str]) -> DeleteOptions:
    """Read the options of a deletion. If there is a body, it takes precedence.

    Raises:
        StatusError: 400 for a body that is no `DeleteOptions`.
    """
    if body is not None and not isinstance(body, dict):
        raise bad_request("the request body is not a DeleteOptions object")
    body = body or {}
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    orphan = body.get("orphanDependents", query.get("orphanDependents"))
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy", "")
    if not propagation and orphan is not None:
        propagation = "Orphan" if orphan in (True, "true") else "Background"
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        why = (
            f'Unsupported value: "{propagation}": supported values: "Foreground", "Background", '
            '"Orphan", "nil"'
        )
        cause = Cause("propagationPolicy", why, "FieldValueNotSupported")
        raise invalid_options("DeleteOptions", cause)
    return DeleteOptions(
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
        propagation=propagation,
        grace_seconds=None if grace is None else int(grace),
        dry_run="All" in (body.get("dryRun") or ()) or query.get("dryRun") == "All",
    )


class Deleter:
    """The part of the server that performs deletions.

    Attributes:
        termination: Which pods go through a grace period.
    """

    def __init__(self, writer: Writer) -> None:
        """Work on the store of a writer."""
        self._writer = writer
        self._store = writer.store
        self.termination: Termination = "scheduled"

    def delete(self, target: Target, options: DeleteOptions) -> Manifest:
        """Delete an object or mark it for deletion, and return the response.

        Raises:
            StatusError: Absent (404), or a precondition fails (409).
        """
        record = self._store.get(target.resource.table, target.key)
        if record is None:
            raise not_found(target.resource, target.key.name)
        self._check(target, record, options)
        obj = _copy(record.obj)
        grace = self._grace(target, obj, options)
        finalizers = _finalizers_for(target, obj, options)
        marked = self._mark(target, obj, finalizers, grace)
        if options.dry_run:
            return obj
        if is_finished(obj):
            if marked and target.resource.table == ("", "pods"):
                # Kinds with grace periods show the deletion once before they go.
                self._store.put(target.resource.table, target.key, _copy(obj))
            gone = self._store.delete(target.resource.table, target.key)
            if target.resource.plural in _RETURNS_OBJECT and not target.resource.custom:
                obj["metadata"]["resourceVersion"] = str(gone.version)
                return obj
            return success(target.resource, target.key.name, record.uid)
        if marked:
            self._store.put(target.resource.table, target.key, obj)
        return obj

    def finish(self, target: Target) -> None:
        """End the grace period of an object, as the kubelet does once containers have stopped.

        Raises:
            KeyError: There is no such object, or nobody asked for its deletion.
        """
        record = self._store.get(target.resource.table, target.key)
        if record is None or not record.obj["metadata"].get("deletionTimestamp"):
            raise KeyError(f"{target.resource.kind} {target.key}: is not being deleted")
        obj = _copy(record.obj)
        obj["metadata"]["deletionGracePeriodSeconds"] = 0
        if is_finished(obj):
            self._store.delete(target.resource.table, target.key)
        else:
            self._store.put(target.resource.table, target.key, obj)

    def _check(self, target: Target, record: Record, options: DeleteOptions) -> None:
        name, metadata = target.key.name, record.obj["metadata"]
        if options.uid and options.uid != metadata["uid"]:
            raise failed_precondition(
                target.resource,
                name,
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({metadata['uid']}). The object might have been deleted and then recreated",
            )
        if options.version and options.version != metadata["resourceVersion"]:
            raise failed_precondition(
                target.resource,
                name,
                f"the ResourceVersion in the precondition ({options.version}) does not match the "
                f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have "
                "been modified",
            )

    def _grace(self, target: Target, obj: Manifest, options: DeleteOptions) -> int:
        if target.resource.table != ("", "pods") or self.termination == "never":
            return 0
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        grace = options.grace_seconds
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
        if self.termination == "always":
            return int(grace)
        running = spec.get("nodeName") and status.get("phase") not in ("Succeeded", "Failed")
        return int(grace) if running else 0

    def _mark(self, target: Target, obj: Manifest, finalizers: list[str], grace: int) -> bool:
        """Write the deletion into the metadata; return whether that changed anything."""
        metadata = obj["metadata"]
        before = (metadata.get("finalizers") or [], metadata.get("deletionGracePeriodSeconds"))
        if finalizers or metadata.get("finalizers"):
            metadata["finalizers"] = finalizers
            if not finalizers:
                del metadata["finalizers"]
        first = not metadata.get("deletionTimestamp")
        if first:
            due = self._writer.now() + timedelta(seconds=grace)
            metadata["deletionTimestamp"] = due.strftime("%Y-%m-%dT%H:%M:%SZ")
            if metadata.get("generation"):
                metadata["generation"] += 1
            if target.resource.table == NAMESPACES:
                # Deleted in its own way, without a grace period.
                obj.setdefault("status", {})["phase"] = "Terminating"
            else:
                metadata["deletionGracePeriodSeconds"] = grace
        elif grace < metadata.get("deletionGracePeriodSeconds", 0):
            metadata["deletionGracePeriodSeconds"] = grace
        after = (metadata.get("finalizers") or [], metadata.get("deletionGracePeriodSeconds"))
        return first or before != after


def _finalizers_for(target: Target, obj: Manifest, options: DeleteOptions) -> list[str]:
    """Return the finalizers, with the finalizer that the propagation requires."""
    kept = obj["metadata"].get("finalizers") or []
    if not options.propagation:
        return list(kept)
    finalizers = [f for f in kept if f not in ("orphan", "foregroundDeletion")]
    if options.propagation == "Orphan":
        finalizers.append("orphan")
    elif options.propagation == "Foreground":
        finalizers.append("foregroundDeletion")
    return finalizers


def _copy(obj: Manifest) -> Manifest:
    return {
        **obj,
        "metadata": dict(obj["metadata"]),
        **({"status": dict(obj["status"])} if isinstance(obj.get("status"), dict) else {}),
    }
