"""Finalizers: added before the first side effect, removed when the clean-up is done.

Every patch contains a `test` of the UID and of the resource version, so that neither a stale cache
nor a second leader can remove the finalizer from an object that has changed or was recreated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from libs.common.kinds import Manifest, is_deleting
from libs.common.labels import FORCE_FINALIZE

_ORPHAN: Final = "orphan"
"""Finalizer that Kubernetes sets on an object that is deleted with `--cascade=orphan`."""


def has_finalizer(manifest: Mapping[str, Any], finalizer: str) -> bool:
    """Return whether an object has a finalizer."""
    return finalizer in (manifest["metadata"].get("finalizers") or ())


def is_orphaning(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object is being deleted with `--cascade=orphan`."""
    return is_deleting(manifest) and has_finalizer(manifest, _ORPHAN)


def is_forced(manifest: Mapping[str, Any]) -> bool:
    """Return whether a person requested deletion without clean-up."""
    annotations = manifest["metadata"].get("annotations") or {}
    return annotations.get(FORCE_FINALIZE) == "true"


def is_deletion_delayed(manifest: Mapping[str, Any]) -> bool:
    """Return whether a deleted object still exists, because of its grace period or its finalizers.

    If the object was deleted immediately, the response contains its last state; for a pod even with
    a deletionTimestamp.
    """
    metadata = manifest.get("metadata") or {}
    # A namespace has its finalizers in the spec, and is deleted when it is empty.
    if metadata.get("finalizers") or (manifest.get("spec") or {}).get("finalizers"):
        return True
    return bool(metadata.get("deletionTimestamp")) and bool(
        metadata.get("deletionGracePeriodSeconds")
    )


def build_add_patch(manifest: Mapping[str, Any], finalizer: str) -> list[Manifest]:
    """Build the JSON patch that adds a finalizer.

    Returns:
        Operations; empty if the object has the finalizer or is being deleted (the API server then
        forbids new finalizers).
    """
    if has_finalizer(manifest, finalizer) or is_deleting(manifest):
        return []
    held = manifest["metadata"].get("finalizers") or []
    return [*_guards(manifest), _write([*held, finalizer])]


def build_remove_patch(manifest: Mapping[str, Any], finalizer: str) -> list[Manifest]:
    """Build the JSON patch that removes a finalizer; empty if the object does not have it."""
    if not has_finalizer(manifest, finalizer):
        return []
    held = manifest["metadata"].get("finalizers") or []
    return [*_guards(manifest), _write([name for name in held if name != finalizer])]


def _guards(manifest: Mapping[str, Any]) -> list[Manifest]:
    metadata = manifest["metadata"]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
    ]


def _write(finalizers: list[str]) -> Manifest:
    # "add" on an existing member replaces it, so one operation covers both cases.
    return {"op": "add", "path": "/metadata/finalizers", "value": finalizers}
