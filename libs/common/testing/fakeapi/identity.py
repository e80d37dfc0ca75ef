"""Whether a write is about the object that it names, and which metadata it cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi import strategies
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.statuses import Cause, bad_request, conflict, invalid

KEPT_BY_UPDATE: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "selfLink",
)
"""Metadata that only the server sets."""


def check_identity(target: Target, obj: Manifest) -> None:
    """Refuse an object that is not the one of the path, and name it as the path does.

    Raises:
        StatusError: 400.
    """
    check_names(target, obj["metadata"])
    obj["metadata"]["name"] = target.key.name
    if target.key.namespace:
        obj["metadata"]["namespace"] = target.key.namespace


def check_names(target: Target, metadata: Mapping[str, Any]) -> None:
    """Refuse metadata that names another object than the path.

    Raises:
        StatusError: 400.
    """
    name, namespace = target.key.name, target.key.namespace
    if metadata.get("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    if (metadata.get("namespace") or namespace) != namespace:
        raise bad_request(
            f"the namespace of the object ({metadata['namespace']}) does not match the namespace "
            f"on the request ({namespace})"
        )


def check_preconditions(target: Target, old: Manifest, new: Manifest, *, patching: bool) -> None:
    """Refuse metadata with another UID or resource version than the stored one.

    The UID in a patch of the status of a custom kind is nobody's concern, as on the real server:
    it takes all metadata from the stored object before it looks at it.

    Raises:
        StatusError: 409, or 422 for the UID in a patch.
    """
    name = target.key.name
    overlooked = patching and target.resource.custom and target.subresource == "status"
    if new.get("uid", old["uid"]) != old["uid"] and not overlooked:
        if patching:
            cause = Cause("metadata.uid", f'Invalid value: "{new["uid"]}": field is immutable')
            raise invalid(target.resource, name, [cause] * 2)
        where = "/".join(("/registry", target.resource.plural, *filter(None, target.key)))
        why = (
            f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {new['uid']}, "
            f"UID in object meta: {old['uid']}"
        )
        raise conflict(target.resource, name, why)
    if (new.get("resourceVersion") or old["resourceVersion"]) != old["resourceVersion"]:
        raise conflict(target.resource, name)


def carry_over(target: Target, old: Manifest, new: Manifest) -> None:
    """Put back into new metadata what only the server sets."""
    for name in KEPT_BY_UPDATE:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)
    if not target.resource.namespaced:
        new.pop("namespace", None)


def changes_generation(target: Target, old: Manifest, new: Manifest) -> bool:
    """Return whether a write changes the generation of an object: any part except its status."""
    if not strategies.counts_generations(target.resource) or target.subresource == "status":
        return False
    skipped = {"metadata", "apiVersion", "kind"}
    if not target.resource.custom or "status" in target.version.subresources:
        skipped.add("status")
    before, after = ({k: v for k, v in obj.items() if k not in skipped} for obj in (old, new))
    return before != after


def check_finalizers(old: Manifest, new: Manifest) -> list[Cause]:
    """Return the refusals of finalizers that come after the deletion was asked for."""
    if not old["metadata"].get("deletionTimestamp"):
        return []
    before = set(old["metadata"].get("finalizers") or ())
    added = [f for f in new["metadata"].get("finalizers") or () if f not in before]
    if not added:
        return []
    listed = "{" + ", ".join(f'"{finalizer}"' for finalizer in added) + "}"
    why = (
        "Forbidden: no new finalizers can be added if the object is being deleted, found new "
        f"finalizers []string{listed}"
    )
    # The real server checks metadata twice and says so twice.
    return [Cause("metadata.finalizers", why, "FieldValueForbidden")] * 2


def is_finished(obj: Manifest) -> bool:
    """Return whether nothing holds back the removal of an object that is being deleted."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if obj["kind"] == "Namespace" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")
