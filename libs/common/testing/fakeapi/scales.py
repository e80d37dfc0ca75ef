"""The `/scale` subresource of custom kinds that declare it, and of the built-in workloads."""

from __future__ import annotations

import copy
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.statuses import Cause, bad_request, invalid

_BUILTIN: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
}


def build_scale(target: Target, obj: Manifest) -> Manifest:
    """Build the `Scale` of an object."""
    paths = _paths(target)
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    scale: Manifest = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": _read(obj, paths["specReplicasPath"]) or 0},
        "status": {"replicas": _read(obj, paths["statusReplicasPath"]) or 0},
    }
    selector = _selector(target, obj, paths)
    if selector:
        scale["status"]["selector"] = selector
    return scale


def apply_scale(target: Target, obj: Manifest, scale: Any) -> Manifest:
    """Return the object with the replicas of a `Scale`.

    Raises:
        StatusError: 400 or 422 for a scale that makes no sense.
    """
    if not isinstance(scale, dict):
        raise bad_request("the request body is not a Scale object")
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not target.resource.custom and (not isinstance(replicas, int) or replicas < 0):
        why = f"Invalid value: {replicas}: must be greater than or equal to 0"
        error = invalid(target.resource, target.key.name, [Cause("spec.replicas", why)])
        error.body["message"] = (
            f'Scale.autoscaling "{target.key.name}" is invalid: spec.replicas: {why}'
        )
        error.body["details"].update(group="autoscaling", kind="Scale")
        raise error
    out = copy.deepcopy(obj)
    sent = scale.get("metadata") or {}
    for name in ("resourceVersion", "uid"):
        if sent.get(name):
            out["metadata"][name] = sent[name]
    parts = _paths(target)["specReplicasPath"].lstrip(".").split(".")
    holder = out
    for part in parts[:-1]:
        holder = holder.setdefault(part, {})
    holder[parts[-1]] = replicas
    return out


def _paths(target: Target) -> Manifest:
    return target.version.subresources["scale"] if target.resource.custom else _BUILTIN


def _read(obj: Any, path: str) -> Any:
    for part in path.lstrip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _selector(target: Target, obj: Manifest, paths: Manifest) -> str:
    if target.resource.custom:
        path = paths.get("labelSelectorPath")
        return (_read(obj, path) or "") if path else ""
    labels = _read(obj, ".spec.selector.matchLabels") or {}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
