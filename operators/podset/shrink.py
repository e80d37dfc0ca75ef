"""Transform of the pod cache: keeps the fields that `parse_pod`, adoption and the runtime read.

Most of these values are equal in all pods of a PodSet, so the pods share them in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final

from libs.common.kinds import Manifest
from operators.podset.naming import ATTEMPT_ANNOTATION, DELETION_COST_ANNOTATION, SLOT_LABEL
from operators.podset.view import GRACE, PROBLEM_LIMIT, ShrunkPod, init_problem, sidecars_of

_READ_CONDITIONS: Final = frozenset({"Ready", "DisruptionTarget", "PodScheduled"})


def shrink_pod(manifest: Manifest) -> Manifest:
    """Return a pod with only the fields that `parse_pod`, adoption and the runtime read.

    A pod of a real cluster takes about 20 KiB of memory, a shrunk one about 2 KiB. Shrinking is
    idempotent.
    """
    metadata, spec, status = manifest["metadata"], manifest.get("spec"), manifest.get("status")
    shrunk: Manifest = {"metadata": _shrink_metadata(metadata)}
    sidecars = sidecars_of(manifest)
    kept: Manifest = {}
    if spec and spec.get("nodeName"):
        kept["nodeName"] = _intern(spec["nodeName"])
    if sidecars:
        kept["initContainers"] = _share_sidecars(sidecars)
    if kept:
        shrunk["spec"] = kept
    if status:
        shrunk["status"] = _shrink_status(status, sidecars)
    return ShrunkPod(shrunk)


def _shrink_metadata(metadata: Mapping[str, Any]) -> Manifest:
    kept = {
        name: metadata[name]
        for name in ("name", "uid", "resourceVersion", "deletionTimestamp", "finalizers")
        if metadata.get(name)
    }
    if "deletionTimestamp" in kept:
        kept[GRACE] = metadata.get(GRACE)
    for name in ("namespace", "creationTimestamp"):
        if metadata.get(name):
            kept[name] = _intern(metadata[name])
    if metadata.get("labels"):
        # The name contains the slot as well. Without this label, all pods of a template have equal
        # labels, which they share.
        labels = {k: v for k, v in metadata["labels"].items() if k != SLOT_LABEL}
        kept["labels"] = _share_labels(tuple(sorted(labels.items())))
    annotations = metadata.get("annotations") or {}
    read = {
        name: annotations[name]
        for name in (ATTEMPT_ANNOTATION, DELETION_COST_ANNOTATION)
        if name in annotations
    }
    if read:
        kept["annotations"] = read
    if metadata.get("ownerReferences"):
        owners = tuple(tuple(sorted(owner.items())) for owner in metadata["ownerReferences"])
        kept["ownerReferences"] = _share_owners(owners)
    return kept


@lru_cache(maxsize=4096)
def _share_labels(labels: tuple[tuple[str, str], ...]) -> Manifest:
    return dict(labels)


@lru_cache(maxsize=4096)
def _share_owners(owners: tuple[tuple[tuple[str, Any], ...], ...]) -> list[Manifest]:
    return [dict(owner) for owner in owners]


@lru_cache(maxsize=1024)
def _share_sidecars(names: frozenset[str]) -> list[Manifest]:
    return [{"name": name, "restartPolicy": "Always"} for name in sorted(names)]


def _shrink_status(status: Mapping[str, Any], sidecars: Collection[str]) -> Manifest:
    kept: Manifest = {name: status[name] for name in ("phase", "reason") if status.get(name)}
    if status.get("reason") and status.get("message"):
        kept["message"] = str(status["message"])[:PROBLEM_LIMIT]
    conditions = [
        _shrink_condition(condition)
        for condition in status.get("conditions") or ()
        if condition.get("type") in _READ_CONDITIONS
        and (condition["type"] != "PodScheduled" or condition.get("status") == "False")
    ]
    if conditions:
        kept["conditions"] = conditions
    containers = [
        shrunk for item in status.get("containerStatuses") or () if (shrunk := _shrink_state(item))
    ]
    if containers:
        kept["containerStatuses"] = containers
    if status.get("initContainerStatuses"):
        init = [_shrink_init(item, sidecars) for item in status["initContainerStatuses"]]
        kept["initContainerStatuses"] = [item for item in init if item]
    return kept


def _shrink_condition(condition: Mapping[str, Any]) -> Manifest:
    name = condition["type"]
    # The status of the PodSet shows the reason of PodScheduled; the reasons of other conditions are
    # not read.
    reason = (condition.get("reason") or "") if name == "PodScheduled" else ""
    time = condition.get("lastTransitionTime") or ""
    return _share_condition(name, condition.get("status") or "", time, reason)


def _shrink_state(container: Mapping[str, Any]) -> Manifest:
    """Keep the restarts of a container, and when and why it stopped; empty if there is nothing."""
    kept: Manifest = {}
    if container.get("restartCount"):
        kept["restartCount"] = container["restartCount"]
    state = container.get("state") or {}
    for name, fields in (("waiting", ("reason",)), ("terminated", ("reason", "finishedAt"))):
        if state.get(name):
            read = {field: state[name][field] for field in fields if state[name].get(field)}
            kept["state"] = {name: read}
    return kept


def _shrink_init(container: Mapping[str, Any], sidecars: Collection[str]) -> Manifest:
    """Keep the restarts of a sidecar, and why an init container is not complete; may be empty."""
    kept: Manifest = {}
    if container.get("restartCount") and container.get("name") in sidecars:
        kept = {"name": container["name"], "restartCount": container["restartCount"]}
    if init_problem(container):
        kept["state"] = {
            name: {field: held[field] for field in ("reason", "exitCode") if held.get(field)}
            for name, held in container["state"].items()
        }
    return kept


@lru_cache(maxsize=16_384)
def _share_condition(name: str, status: str, time: str, reason: str) -> Manifest:
    fields = {"type": name, "status": status, "lastTransitionTime": time, "reason": reason}
    return {field: value for field, value in fields.items() if value}


@lru_cache(maxsize=16_384)
def _intern(text: str) -> str:
    """Return the same string object for equal texts, to save memory: many pods share them."""
    return text
