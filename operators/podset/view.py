"""A view of a pod with only the fields that the planner reads.

Times are kept as text: all times of the API have the form `2026-01-31T12:00:00Z`, so they can be
compared as text; only a few are parsed, for arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from libs.common.conditions import parse_time
from libs.common.kinds import Manifest
from operators.podset.naming import (
    ATTEMPT_ANNOTATION,
    DELETION_COST_ANNOTATION,
    TEMPLATE_HASH_LABEL,
    parse_slot,
)

GRACE: Final = "deletionGracePeriodSeconds"
"""Field of the metadata: remaining seconds of a pod that is being deleted."""
PROBLEM_LIMIT: Final = 1024
"""Maximum length of the text about a problem of a pod: the kubelet names the cause at its end."""
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of waiting containers that are no problem."""

_NO_NAMES: Final[frozenset[str]] = frozenset()
_INACTIVE: Final = frozenset({"Succeeded", "Failed"})
_COST_LIMIT: Final = 2**31 - 1
_COST: Final = re.compile(r"0|[1-9][0-9]{0,9}|-[0-9]{1,19}")
"""A number in the format that ReplicaSet accepts: no plus sign, no leading zeros."""
_ATTEMPT_LIMIT: Final = 1_000
_COUNT: Final = re.compile(r"0|[1-9][0-9]*")
_DIGITS: Final = 9
"""Maximum number of digits to parse: the time to parse a number grows with its length, and anyone
who can annotate pods can set it."""


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod as the planner sees it.

    Attributes:
        slot: Number in its name; None for a pod that the set did not create.
        phase: `status.phase`.
        node: Node that it is bound to; empty before it is scheduled.
        is_ready: Whether its condition Ready is True.
        ended: When it ended, if known; empty for a pod that has not ended.
        restarts: Restarts of the container that was restarted most.
        sidecar_restarts: The same for sidecars (restartable init containers).
        deletion_cost: Value of the annotation of Kubernetes; 0 without it.
        template_hash: Hash of the template from which it was created; empty if unknown.
        attempt: Number of successive earlier pods that failed soon after their start.
        problem: Why it does not run, in a few words; empty if unknown.
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
    sidecar_restarts: int = 0
    deletion_cost: int = 0
    template_hash: str = ""
    attempt: int = 0
    problem: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the pod counts as a replica: it has not ended and is not being deleted."""
        return not self.is_deleting and self.phase not in _INACTIVE

    @property
    def has_ended(self) -> bool:
        """Whether all containers have terminated and the pod is not being deleted."""
        return not self.is_deleting and self.phase in _INACTIVE


class ShrunkPod(dict[str, Any]):
    """A shrunk pod, which caches its parsed form: each version is parsed once."""

    __slots__ = ("read",)

    def __init__(self, manifest: Manifest) -> None:
        """Copy the fields of a manifest."""
        super().__init__(manifest)
        self.read: tuple[str, PodView] | None = None


def parse_pod(manifest: Mapping[str, Any], set_name: str) -> PodView:
    """Parse a pod, complete or shrunk."""
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
    init = status.get("initContainerStatuses") or ()
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
        restarts=max((each.get("restartCount") or 0 for each in containers), default=0),
        sidecar_restarts=_count_restarts(init, sidecars_of(manifest)) if init else 0,
        deletion_cost=_parse_cost(annotations.get(DELETION_COST_ANNOTATION)),
        template_hash=(metadata.get("labels") or {}).get(TEMPLATE_HASH_LABEL) or "",
        attempt=_parse_count(annotations.get(ATTEMPT_ANNOTATION)),
        problem="" if is_ready else _describe_problem(status, init, containers),
    )


def is_gone(manifest: Mapping[str, Any]) -> bool:
    """Return whether a pod in the cache has been deleted already.

    A pod that ended or has no node is deleted without a grace period, but the response to the
    deletion still contains it. If such a pod exists nevertheless, the next create with its name
    fails and reads it.
    """
    metadata = manifest["metadata"]
    deleted = bool(metadata.get("deletionTimestamp")) and metadata.get(GRACE) == 0
    return deleted and not metadata.get("finalizers")


def seconds_of(time: str) -> float | None:
    """Return a time of the API as seconds since 1970, or None for an empty text."""
    return _parse_seconds(time) if time else None


@lru_cache(maxsize=16_384)
def _parse_seconds(time: str) -> float:
    return parse_time(time).timestamp()


def _find_condition(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == name:
            return condition  # type: ignore[no-any-return] # raw JSON
    return {}


def _ended(metadata: Mapping[str, Any], status: Mapping[str, Any], ready: Mapping[str, Any]) -> str:
    """Return when a pod ended: the end of its last container, else a condition, else its creation.

    The kubelet may not report container statuses, for example for an evicted pod.
    """
    finished = [
        ((container.get("state") or {}).get("terminated") or {}).get("finishedAt") or ""
        for container in status.get("containerStatuses") or ()
    ]
    disrupted = _find_condition(status, "DisruptionTarget").get("lastTransitionTime")
    known = max(finished, default="") or disrupted or ready.get("lastTransitionTime")
    return known or metadata.get("creationTimestamp") or ""


def _parse_cost(text: object) -> int:
    """Parse a deletion cost as ReplicaSet does: anything but a 32-bit number counts as 0."""
    cost = int(text) if isinstance(text, str) and _COST.fullmatch(text) else 0
    return cost if -_COST_LIMIT - 1 <= cost <= _COST_LIMIT else 0


def _parse_count(text: object) -> int:
    """Parse a bounded count; anyone who can annotate pods may have set it to any text."""
    if not isinstance(text, str) or not _COUNT.fullmatch(text):
        return 0
    return min(int(text[:_DIGITS]), _ATTEMPT_LIMIT)


def sidecars_of(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the sidecars (restartable init containers)."""
    init = (manifest.get("spec") or {}).get("initContainers")
    if not init:
        return _NO_NAMES
    return frozenset(each["name"] for each in init if each.get("restartPolicy") == "Always")


def _count_restarts(init: Sequence[Mapping[str, Any]], sidecars: Collection[str]) -> int:
    """Return the restarts of the sidecar that was restarted most."""
    named = (each for each in init if each.get("name") in sidecars)
    return max((each.get("restartCount") or 0 for each in named), default=0)


def _describe_problem(
    status: Mapping[str, Any],
    init: Sequence[Mapping[str, Any]],
    containers: Sequence[Mapping[str, Any]],
) -> str:
    if status.get("reason"):
        words = f"{status['reason']}: {status.get('message') or ''}"
        return words.strip(": ")[:PROBLEM_LIMIT]
    for container in init:
        problem = init_problem(container)
        if problem:
            return f"Init:{problem}"[:PROBLEM_LIMIT]
    for container in containers:
        state = container.get("state") or {}
        for name in ("waiting", "terminated"):
            reason = (state.get(name) or {}).get("reason")
            if reason and reason not in _STARTING:
                return str(reason)[:PROBLEM_LIMIT]
    scheduled = _find_condition(status, "PodScheduled")
    return str(scheduled.get("reason") or "") if scheduled.get("status") == "False" else ""


def init_problem(container: Mapping[str, Any]) -> str:
    """Return why an init container does not complete; empty if it only waits for its turn."""
    state = container.get("state") or {}
    waiting = str((state.get("waiting") or {}).get("reason") or "")
    if waiting and waiting not in _STARTING:
        return waiting
    ended = state.get("terminated") or {}
    return str(ended.get("reason") or "Error") if ended.get("exitCode") else ""
