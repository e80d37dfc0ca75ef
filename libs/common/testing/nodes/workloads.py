"""Deployments and ReplicaSets where no controller manager runs. Pure.

A change of the template makes a new ReplicaSet; the old ones are emptied once the new one is ready.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from libs.common.kinds import (
    DEPLOYMENT,
    POD,
    REPLICA_SET,
    Key,
    Kind,
    Manifest,
    build_object,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.ownership import build_owner_reference, is_controlled_by
from libs.common.reading import int_at, map_at, maps_at, text_at

_HASH: Final = "pod-template-hash"
_SUFFIX: Final = 5


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; it is fine if it exists."""

    kind: Kind
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object."""

    kind: Kind
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge a change into an object."""

    kind: Kind
    key: Key
    change: Manifest
    subresource: str = ""


type Action = Create | Delete | Patch


def plan_replica_set(owner: Manifest, pods: Iterable[Manifest]) -> Iterator[Action]:
    """Plan the pods of a ReplicaSet: each has a number in its name, so that none comes twice."""
    if is_deleting(owner):
        return
    key, wanted = key_of(owner), int_at(owner, "spec", "replicas") or 0
    own = {key_of(pod).name: pod for pod in pods if is_controlled_by(pod, owner)}
    names = [f"{key.name}-{_digest(f'{uid_of(owner)}{number}')}" for number in range(wanted)]
    template = map_at(owner, "spec", "template")
    for name in names:
        if name not in own:
            metadata = {
                **map_at(template, "metadata"),
                "ownerReferences": [build_owner_reference(REPLICA_SET, owner)],
            }
            spec = map_at(template, "spec")
            yield Create(POD, build_object(POD, name, key.namespace, metadata=metadata, spec=spec))
    for name, pod in own.items():
        if name not in names and not is_deleting(pod):
            yield Delete(POD, pod)
    ready = sum(_is_ready(pod) for pod in own.values())
    status = {
        "replicas": len(own),
        "fullyLabeledReplicas": len(own),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": owner["metadata"].get("generation", 1),
    }
    if any((int_at(owner, "status", name) or 0) != value for name, value in status.items()):
        yield Patch(REPLICA_SET, key, {"status": status}, "status")


def plan_deployment(owner: Manifest, sets: Sequence[Manifest], now: str) -> Iterator[Action]:
    """Plan the ReplicaSets of a Deployment."""
    if is_deleting(owner):
        return
    wanted = int_at(owner, "spec", "replicas") or 0
    own = [each for each in sets if is_controlled_by(each, owner)]
    fresh = _build_set(owner, own)
    name = key_of(fresh).name
    current = next((each for each in own if key_of(each).name == name), None)
    if current is None:
        yield Create(REPLICA_SET, fresh)
    elif int_at(current, "spec", "replicas") != wanted:
        yield Patch(REPLICA_SET, key_of(current), {"spec": {"replicas": wanted}})
    updated = int_at(current or {}, "status", "replicas") or 0
    ready = int_at(current or {}, "status", "readyReplicas") or 0
    for each in own:
        if each is not current and ready >= wanted and int_at(each, "spec", "replicas"):
            yield Patch(REPLICA_SET, key_of(each), {"spec": {"replicas": 0}})
    status = _build_status(owner, own, min(updated, wanted), ready >= wanted, now)
    if any(map_at(owner, "status").get(name, 0) != value for name, value in status.items()):
        yield Patch(DEPLOYMENT, key_of(owner), {"status": status}, "status")


def _build_set(owner: Manifest, own: Sequence[Manifest]) -> Manifest:
    spec, key = map_at(owner, "spec"), key_of(owner)
    digest = _digest(orjson.dumps(spec["template"], option=orjson.OPT_SORT_KEYS).decode(), 10)
    label = {_HASH: digest}
    template = dict(spec["template"])
    metadata = map_at(template, "metadata")
    labels = {**map_at(metadata, "labels"), **label}
    template["metadata"] = {**metadata, "labels": labels}
    selector = map_at(spec, "selector")
    matched = {**selector, "matchLabels": {**map_at(selector, "matchLabels"), **label}}
    revision = str(len(own) + 1)
    return build_object(
        REPLICA_SET,
        f"{key.name}-{digest}",
        key.namespace,
        metadata={
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": revision},
            "ownerReferences": [build_owner_reference(DEPLOYMENT, owner)],
        },
        spec={"replicas": spec.get("replicas", 0), "selector": matched, "template": template},
    )


def _build_status(
    owner: Manifest, own: Sequence[Manifest], updated: int, complete: bool, now: str
) -> Manifest:
    def count(field: str) -> int:
        return sum(int_at(each, "status", field) or 0 for each in own)

    held = {each["type"]: each for each in maps_at(owner, "status", "conditions")}
    progress = "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"
    conditions = []
    for type_, status, reason in (
        (
            "Available",
            complete,
            "MinimumReplicasAvailable" if complete else "MinimumReplicasUnavailable",
        ),
        ("Progressing", True, progress),
    ):
        before = held.get(type_, {})
        same = before.get("status") == str(status) and before.get("reason") == reason
        since = before["lastTransitionTime"] if same else now
        times = {"lastTransitionTime": since, "lastUpdateTime": since}
        condition = {"type": type_, "status": str(status), "reason": reason, "message": ""}
        conditions.append({**condition, **times})
    return {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": count("replicas"),
        "updatedReplicas": updated,
        "readyReplicas": count("readyReplicas"),
        "availableReplicas": count("readyReplicas"),
        "conditions": conditions,
    }


def _is_ready(pod: Manifest) -> bool:
    ready = (each for each in maps_at(pod, "status", "conditions") if each["type"] == "Ready")
    return any(text_at(each, "status") == "True" for each in ready) and not is_deleting(pod)


def _digest(text: str, length: int = _SUFFIX) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
