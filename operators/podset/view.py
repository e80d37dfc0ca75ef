"""What the planner reads of a pod, and nothing else.

Times stay text: those of the API all have the form `2026-01-31T12:00:00Z`, so they compare as text,
and only the few that are ranked or added to are parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from libs.common.conditions import parse_time
from libs.common.kinds import Manifest
from operators.podset.naming import (
    ATTEMPT_ANNOTATION,
    DELETION_COST_ANNOTATION,
    SLOT_LABEL,
    TEMPLATE_HASH_LABEL,
    parse_slot,
)

_INACTIVE: Final = frozenset({"Succeeded", "Failed"})
_GRACE: Final = "deletionGracePeriodSeconds"
_COST_LIMIT: Final = 2**31 - 1
_ATTEMPT_LIMIT: Final = 1_000
_TROUBLE_LIMIT: Final = 120
_READ_CONDITIONS: Final = frozenset({"Ready", "DisruptionTarget", "PodScheduled"})


@dataclass(frozen=True, slots=True)
class PodView:
    """Show one pod to the planner.

    Attributes:
        name: Name of the pod.
        uid: Which incarnation.
        slot: Number in its name; None for a pod that the set did not make.
        is_deleting: Whether deletion has been asked for.
        phase: `status.phase`.
        node: Node that it is bound to; empty before it is scheduled.
        is_ready: Whether its condition Ready is True.
        ready_since: When that condition last changed.
        created: When the pod was created.
        ended: When it ended, as far as anybody knows; empty for a pod that has not.
        restarts: Restarts of the container that was restarted most.
        deletion_cost: What the annotation of Kubernetes says; 0 without it.
        template_hash: Hash of the template that it was made from; empty when unknown.
        attempt: How many pods before it in a row failed at once.
        trouble: Why it does not run, in a few words; empty when nothing is known.
    """

    name: str
    uid: str
    slot: int | None
    is_deleting: bool = False
    phase: str = "Pending"
    node: str = ""
    is_ready: bool = False
    ready_since: str = ""
    created: str = ""
    ended: str = ""
    restarts: int = 0
    deletion_cost: int = 0
    template_hash: str = ""
    attempt: int = 0
    trouble: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the pod counts: it has not ended and is not being deleted."""
        return not self.is_deleting and self.phase not in _INACTIVE

    @property
    def has_ended(self) -> bool:
        """Whether all containers are done and nobody has asked for deletion yet."""
        return not self.is_deleting and self.phase in _INACTIVE


class ShrunkPod(dict[str, Any]):
    """A shrunk pod, which remembers how it was read: each version is parsed once, not each pass."""

    __slots__ = ("read",)

    def __init__(self, manifest: Manifest) -> None:
        """Take over the fields of a manifest."""
        super().__init__(manifest)
        self.read: tuple[str, PodView] | None = None


def parse_pod(manifest: Mapping[str, Any], set_name: str) -> PodView:
    """Read a pod, whole or shrunk."""
    if not isinstance(manifest, ShrunkPod):
        return _parse_pod(manifest, set_name)
    if manifest.read is None or manifest.read[0] != set_name:
        manifest.read = set_name, _parse_pod(manifest, set_name)
    return manifest.read[1]


def _parse_pod(manifest: Mapping[str, Any], set_name: str) -> PodView:
    metadata = manifest["metadata"]
    status = manifest.get("status") or {}
    annotations = metadata.get("annotations") or {}
    phase = status.get("phase") or "Pending"
    ready = _find_condition(status, "Ready")
    is_ready = ready.get("status") == "True"
    has_ended = phase in _INACTIVE
    containers = status.get("containerStatuses") or ()
    return PodView(
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        slot=parse_slot(set_name, metadata["name"]),
        is_deleting=bool(metadata.get("deletionTimestamp")),
        phase=phase,
        node=(manifest.get("spec") or {}).get("nodeName") or "",
        is_ready=is_ready,
        ready_since=ready.get("lastTransitionTime") or "",
        created=metadata.get("creationTimestamp") or "",
        ended=_ended(metadata, status, ready) if has_ended else "",
        restarts=max((status.get("restartCount") or 0 for status in containers), default=0),
        deletion_cost=_parse_cost(annotations.get(DELETION_COST_ANNOTATION)),
        template_hash=(metadata.get("labels") or {}).get(TEMPLATE_HASH_LABEL) or "",
        attempt=_parse_count(annotations.get(ATTEMPT_ANNOTATION)),
        trouble="" if is_ready else _describe_trouble(status, containers),
    )


def is_gone(manifest: Mapping[str, Any]) -> bool:
    """Tell whether a pod is only shown as it last was.

    A pod on no node, or one that ended, goes in the moment in which it is deleted; the answer to
    the deletion still shows it, without any grace. Should it be there after all, then its name is
    taken, and the next look finds out.
    """
    metadata = manifest["metadata"]
    deleted = bool(metadata.get("deletionTimestamp")) and metadata.get(_GRACE) == 0
    return deleted and not metadata.get("finalizers")


def shrink_pod(manifest: Manifest) -> Manifest:
    """Keep of a pod what `parse_pod`, adoption and the runtime read.

    A pod of a real cluster takes some 20 KiB of memory, a shrunk one about 2 KiB. Shrinking a
    shrunk pod changes nothing.
    """
    metadata, spec, status = manifest["metadata"], manifest.get("spec"), manifest.get("status")
    shrunk: Manifest = {"metadata": _shrink_metadata(metadata)}
    if spec and spec.get("nodeName"):
        shrunk["spec"] = {"nodeName": _intern(spec["nodeName"])}
    if status:
        shrunk["status"] = _shrink_status(status)
    return ShrunkPod(shrunk)


def seconds_of(time: str) -> float | None:
    """Return a time of the API as seconds since 1970, or None for an empty text."""
    return _parse_seconds(time) if time else None


@lru_cache(maxsize=16_384)
def _parse_seconds(time: str) -> float:
    return parse_time(time).timestamp()


@lru_cache(maxsize=16_384)
def _intern(text: str) -> str:
    """Return one and the same string for equal texts: pods of a set share most of them."""
    return text


def _find_condition(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == name:
            return condition  # type: ignore[no-any-return] # raw JSON
    return {}


def _ended(metadata: Mapping[str, Any], status: Mapping[str, Any], ready: Mapping[str, Any]) -> str:
    """Return when a pod ended: its last container, else a condition, else its creation."""
    finished = [
        ((container.get("state") or {}).get("terminated") or {}).get("finishedAt") or ""
        for container in status.get("containerStatuses") or ()
    ]
    disrupted = _find_condition(status, "DisruptionTarget").get("lastTransitionTime")
    known = max(finished, default="") or disrupted or ready.get("lastTransitionTime")
    return known or metadata.get("creationTimestamp") or ""


def _parse_cost(text: object) -> int:
    """Read a deletion cost as ReplicaSet does: what is not a 32-bit number counts as 0."""
    try:
        cost = int(str(text)) if text else 0
    except ValueError:
        return 0
    return cost if -_COST_LIMIT - 1 <= cost <= _COST_LIMIT else 0


def _parse_count(text: object) -> int:
    return min(int(text), _ATTEMPT_LIMIT) if isinstance(text, str) and text.isdecimal() else 0


def _describe_trouble(status: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> str:
    if status.get("reason"):
        words = f"{status['reason']}: {status.get('message') or ''}"
        return words.strip(": ")[:_TROUBLE_LIMIT]
    for container in containers:
        state = container.get("state") or {}
        for name in ("waiting", "terminated"):
            reason = (state.get(name) or {}).get("reason")
            if reason:
                return str(reason)[:_TROUBLE_LIMIT]
    scheduled = _find_condition(status, "PodScheduled")
    return str(scheduled.get("reason") or "") if scheduled.get("status") == "False" else ""


def _shrink_metadata(metadata: Mapping[str, Any]) -> Manifest:
    kept = {
        name: metadata[name]
        for name in ("name", "uid", "resourceVersion", "deletionTimestamp", "finalizers")
        if metadata.get(name)
    }
    if "deletionTimestamp" in kept:
        kept[_GRACE] = metadata.get(_GRACE)
    for name in ("namespace", "creationTimestamp"):
        if metadata.get(name):
            kept[name] = _intern(metadata[name])
    if metadata.get("labels"):
        # The slot is in the name as well; without it all pods of a template share their labels.
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


def _shrink_status(status: Mapping[str, Any]) -> Manifest:
    kept: Manifest = {name: status[name] for name in ("phase", "reason") if status.get(name)}
    if status.get("reason") and status.get("message"):
        kept["message"] = str(status["message"])[:_TROUBLE_LIMIT]
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
    return kept


def _shrink_condition(condition: Mapping[str, Any]) -> Manifest:
    name = condition["type"]
    # Why a pod is not scheduled is told to people; of the other conditions only times are read.
    reason = (condition.get("reason") or "") if name == "PodScheduled" else ""
    time = condition.get("lastTransitionTime") or ""
    return _share_condition(name, condition.get("status") or "", time, reason)


def _shrink_state(container: Mapping[str, Any]) -> Manifest:
    """Keep restarts, and why and when a container does not run; empty when there is nothing."""
    kept: Manifest = {}
    if container.get("restartCount"):
        kept["restartCount"] = container["restartCount"]
    state = container.get("state") or {}
    for name, fields in (("waiting", ("reason",)), ("terminated", ("reason", "finishedAt"))):
        if state.get(name):
            read = {field: state[name][field] for field in fields if state[name].get(field)}
            kept["state"] = {name: read}
    return kept


@lru_cache(maxsize=16_384)
def _share_condition(name: str, status: str, time: str, reason: str) -> Manifest:
    fields = {"type": name, "status": status, "lastTransitionTime": time, "reason": reason}
    return {field: value for field, value in fields.items() if value}
