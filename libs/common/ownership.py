"""Owner references: the controller of an object, always identified by its UID."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.common.kinds import Kind, Manifest, is_deleting, uid_of
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.reading import maps_at


def build_owner_reference(kind: Kind, owner: Mapping[str, Any], *, block: bool = True) -> Manifest:
    """Build the controller reference for a child of `owner`.

    The owner must be in the namespace of the child or be cluster-scoped: otherwise the garbage
    collector does not find the owner and deletes the child.

    Args:
        kind: Kind of the owner.
        owner: Manifest of the owner.
        block: Whether a foreground deletion of the owner waits for the child.
    """
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block,
    }


def controller_of(manifest: Mapping[str, Any]) -> Manifest | None:
    """Return the controller reference of an object, or None for an orphan."""
    for reference in maps_at(manifest, "metadata", "ownerReferences"):
        if reference.get("controller"):
            return dict(reference)
    return None


def controller_uid(manifest: Mapping[str, Any]) -> str:
    """Return the UID of the controller, or an empty string for an orphan."""
    for reference in manifest.get("metadata", {}).get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference.get("uid", ""))
    return ""


def is_controlled_by(manifest: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Return whether this incarnation of `owner` controls the object."""
    uid = uid_of(owner)
    return bool(uid) and controller_uid(manifest) == uid


def build_release_patch(manifest: Mapping[str, Any], owner_uid: str) -> list[Manifest]:
    """Build the JSON patch that removes `owner_uid` from the owner references.

    Returns:
        Operations; empty if the object does not have that owner.
    """
    references = manifest.get("metadata", {}).get("ownerReferences") or []
    kept = [reference for reference in references if reference.get("uid") != owner_uid]
    if len(kept) == len(references):
        return []
    if not kept:
        return [{"op": "remove", "path": "/metadata/ownerReferences"}]
    return [{"op": "replace", "path": "/metadata/ownerReferences", "value": kept}]


def build_adopt_patch(manifest: Mapping[str, Any], reference: Mapping[str, Any]) -> list[Manifest]:
    """Build the JSON patch that adds a controller reference to an orphan.

    Raises:
        ValueError: Another controller owns the object; the caller must not adopt it.
    """
    owner = controller_of(manifest)
    if owner is not None and owner.get("uid") != reference["uid"]:
        raise ValueError(
            f"{manifest.get('kind')} {manifest['metadata']['name']} is controlled by "
            f"{owner.get('kind')} {owner.get('name')}; only orphans are adopted"
        )
    references = [
        other
        for other in manifest.get("metadata", {}).get("ownerReferences") or []
        if other.get("uid") != reference["uid"]
    ]
    return [
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [*references, dict(reference)],
        }
    ]


def is_former_child(live: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
    """Return whether an object is the desired child, left by an earlier incarnation of its owner.

    Backup tools and GitOps recreate owners with another UID, and children without owner references
    or with the former UID. Such a child has the labels of the desired one, and every owner that it
    refers to has the kind and the name of the desired controller: two objects never have one name,
    so the former owner no longer exists.

    Args:
        live: Object with the name of the desired one.
        desired: The desired child, with a controller and the labels of its operator.
    """
    owner = controller_of(desired)
    labels, wanted = (each["metadata"].get("labels") or {} for each in (live, desired))
    marks = (MANAGED_BY, INSTANCE)
    if owner is None or is_deleting(live) or not all(wanted.get(mark) for mark in marks):
        return False
    return all(labels.get(mark) == wanted[mark] for mark in marks) and all(
        _identity(reference) == _identity(owner) and reference.get("uid") != owner["uid"]
        for reference in live["metadata"].get("ownerReferences") or ()
    )


def build_inherit_patch(desired: Mapping[str, Any]) -> list[Manifest]:
    """Build the JSON patch that gives a former child the owner references of the desired one."""
    references = desired["metadata"]["ownerReferences"]
    return [{"op": "add", "path": "/metadata/ownerReferences", "value": references}]


def _identity(reference: Mapping[str, Any]) -> tuple[str, object, object]:
    """Return the group, kind and name of an owner; its version may have changed."""
    group = str(reference.get("apiVersion", "")).rpartition("/")[0]
    return group, reference.get("kind"), reference.get("name")
