"""Ownership of children: a controller reference, or an annotation on children to keep. Pure.

A child that must outlive its Instance has no owner reference: during a foreground deletion, the
garbage collector deletes dependents before the finalizer of the owner can prevent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.common.kinds import Manifest
from libs.common.labels import MANAGED_BY
from libs.common.naming import label_value
from libs.common.ownership import build_owner_reference, controller_uid
from libs.common.plan import annotate, escape_pointer
from libs.common.reading import map_at, text_at, text_map_at
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.compute import INSTANCE_LABEL, INSTANCE_UID_LABEL
from operators.compute.api.instance import INSTANCE, Instance
from operators.compute.naming import KEPT_FOR, OPERATOR_ID, ROLE_LABEL, ROOT_ROLE


def build_reference(instance: Instance) -> Manifest:
    """Build the controller reference of a child."""
    metadata = {"name": instance.metadata.name, "uid": instance.metadata.uid}
    return build_owner_reference(INSTANCE, {"metadata": metadata})


def build_mark(instance: Instance, *, owned: bool) -> Manifest:
    """Build the owner reference or annotation in the metadata of a new child."""
    if owned:
        return {"ownerReferences": [build_reference(instance)]}
    return {"annotations": {KEPT_FOR: instance.metadata.uid}}


def is_ours(manifest: Mapping[str, Any], uid: str) -> bool:
    """Return whether an object belongs to this incarnation of an Instance."""
    owner = controller_uid(manifest)
    if owner:
        return owner == uid
    return bool(uid) and _annotations(manifest).get(KEPT_FOR) == uid


def is_former(manifest: Mapping[str, Any], instance: Instance) -> bool:
    """Return whether an earlier Instance with this name has left an object, which can be adopted.

    That Instance no longer exists, because two objects never have one name. Claims are recognized
    by the role of a disk, because CDI replaces their managed-by label.
    """
    labels = text_map_at(manifest, "metadata", "labels")
    marked = labels.get(ROLE_LABEL) == ROOT_ROLE or labels.get(MANAGED_BY) == OPERATOR_ID
    named = labels.get(INSTANCE_LABEL) == label_value(instance.metadata.name)
    uid = instance.metadata.uid
    return (
        marked
        and named
        and not is_ours(manifest, uid)
        and all(
            _is_stale(reference, instance)
            for reference in manifest["metadata"].get("ownerReferences") or ()
        )
    )


def _is_stale(reference: Mapping[str, Any], instance: Instance) -> bool:
    """Return whether an owner no longer exists: an earlier Instance, or its DataVolume."""
    group = str(reference.get("apiVersion", "")).partition("/")[0]
    owner = group, reference.get("kind"), reference.get("name")
    former = owner == (INSTANCE.group, INSTANCE.kind, instance.metadata.name)
    return (former and reference.get("uid") != instance.metadata.uid) or (
        owner[:2] == (DATA_VOLUME.group, DATA_VOLUME.kind)
    )


def is_moved(claim: Mapping[str, Any], instance: Instance) -> bool:
    """Return whether the address of an IPClaim was moved to another target, which keeps it."""
    target = map_at(claim, "spec", "target")
    found = text_at(target, "kind"), text_at(target, "name")
    return found not in (("", ""), (INSTANCE.kind, instance.metadata.name))


def build_adopt_patch(
    manifest: Mapping[str, Any], instance: Instance, *, owned: bool
) -> list[Manifest]:
    """Build the operations that make a former child ours, and remove its former owner."""
    references = [build_reference(instance)] if owned else []
    path = f"/metadata/labels/{escape_pointer(INSTANCE_UID_LABEL)}"
    return [
        {"op": "add", "path": "/metadata/ownerReferences", "value": references},
        {"op": "add", "path": path, "value": instance.metadata.uid},
        *_set_annotation(manifest, "" if owned else instance.metadata.uid),
    ]


def has_other_owner(manifest: Mapping[str, Any], uid: str) -> bool:
    """Return whether an object has another owner as well, which then decides about its deletion.

    The DataVolume of a claim does not count: after its deletion, the claim may still refer to it
    for a moment.
    """
    references = manifest["metadata"].get("ownerReferences") or ()
    others = [reference for reference in references if reference.get("uid") != uid]
    return any(reference.get("kind") != DATA_VOLUME.kind for reference in others)


def build_mark_patch(
    manifest: Mapping[str, Any], instance: Instance, *, owned: bool
) -> list[Manifest]:
    """Build the operations that set the owner reference or annotation; empty if it is correct."""
    reference = [build_reference(instance)] if owned else []
    kept = "" if owned else instance.metadata.uid
    return [
        *_set_references(manifest, instance.metadata.uid, reference),
        *_set_annotation(manifest, kept),
    ]


def build_release_patch(manifest: Mapping[str, Any], uid: str) -> list[Manifest]:
    """Build the operations that remove the owner of an object; empty if it has none.

    They remove the label as well: a claim without its DataVolume is attributed only by the label.
    """
    ours = _annotations(manifest).get(KEPT_FOR) == uid
    labeled = text_map_at(manifest, "metadata", "labels").get(INSTANCE_UID_LABEL) == uid
    path = f"/metadata/labels/{escape_pointer(INSTANCE_UID_LABEL)}"
    return [
        *_set_references(manifest, uid, []),
        *(_set_annotation(manifest, "") if ours else ()),
        *([{"op": "remove", "path": path}] if labeled else ()),
    ]


def _annotations(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    annotations = manifest["metadata"].get("annotations")
    return annotations if isinstance(annotations, Mapping) else {}


def _set_references(
    manifest: Mapping[str, Any], uid: str, wanted: list[Manifest]
) -> list[Manifest]:
    held = list(manifest["metadata"].get("ownerReferences") or ())
    if [reference for reference in held if reference.get("uid") == uid] == wanted:
        return []
    others = [reference for reference in held if reference.get("uid") != uid]
    return [{"op": "add", "path": "/metadata/ownerReferences", "value": [*others, *wanted]}]


def _set_annotation(manifest: Mapping[str, Any], value: str) -> list[Manifest]:
    held = _annotations(manifest)
    if held.get(KEPT_FOR, "") == value:
        return []
    return [annotate(held, KEPT_FOR, value)]
