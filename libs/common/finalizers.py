"""Finalizers: added before the first side effect, taken off when the clean-up is done.

Every change carries a `test` of the UID and of the resource version, so that neither a stale view
nor a second leader can take the finalizer off an object that is not the one that was looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.common.kinds import Manifest, is_deleting
from libs.common.labels import FORCE_FINALIZE


def has_finalizer(manifest: Mapping[str, Any], finalizer: str) -> bool:
    """Return whether an object carries a finalizer."""
    return finalizer in (manifest["metadata"].get("finalizers") or ())


def is_forced(manifest: Mapping[str, Any]) -> bool:
    """Return whether a person asked to let the object go without clean-up."""
    annotations = manifest["metadata"].get("annotations") or {}
    return annotations.get(FORCE_FINALIZE) == "true"


def lingers(manifest: Mapping[str, Any]) -> bool:
    """Return whether a deleted object is still there: for its grace period or its finalizers.

    An object that goes immediately is answered as it last was, a pod even with a deletionTimestamp.
    """
    metadata = manifest.get("metadata") or {}
    # A namespace has finalizers in its spec, and goes when nothing is left in it.
    if metadata.get("finalizers") or (manifest.get("spec") or {}).get("finalizers"):
        return True
    return bool(metadata.get("deletionTimestamp")) and bool(
        metadata.get("deletionGracePeriodSeconds")
    )


def build_add_patch(manifest: Mapping[str, Any], finalizer: str) -> list[Manifest]:
    """Build the JSON patch that adds a finalizer.

    Returns:
        Operations; empty when it is there, or when the object is being deleted already (the API
        server forbids new finalizers then).
    """
    if has_finalizer(manifest, finalizer) or is_deleting(manifest):
        return []
    held = manifest["metadata"].get("finalizers") or []
    return [*_guards(manifest), _write([*held, finalizer])]


def build_remove_patch(manifest: Mapping[str, Any], finalizer: str) -> list[Manifest]:
    """Build the JSON patch that takes a finalizer off; empty when it is not there."""
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
    # "add" on an existing member replaces it, so one operation serves both cases.
    return {"op": "add", "path": "/metadata/finalizers", "value": finalizers}
