"""Status of a PodSet. Equal pods result in an equal status, so no reconcile rewrites the status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from libs.common.conditions import Condition, build_conditions
from libs.common.errors import ApiError, BadRequest, Forbidden, Invalid, MutatedByAdmission
from libs.common.kinds import Manifest
from libs.common.labels import render_selector
from libs.common.plan import Create, Delete, Outcome
from operators.podset.api.v1 import POD_NAMES_LIMIT, ConditionType, PodSet, Reason
from operators.podset.progress import find_time_left, is_progressing
from operators.podset.reconcile import (
    Assessment,
    Desired,
    Observed,
    assess,
    find_available,
    find_current,
)
from operators.podset.view import PodView

_SHOWN: Final = 3
"""Maximum number of names in a message; further names are only counted."""
_LAST: Final = 1 << 31
_OVERDUE: Final = Reason.PROGRESS_DEADLINE_EXCEEDED
_RESTING: Final = frozenset({Reason.PAUSED, Reason.BACK_OFF, Reason.INVALID_SPEC})
"""Reasons for which a set that is not ready does not progress, and has no deadline."""
_REFUSALS: Final = (BadRequest, Forbidden, Invalid)
_WEBHOOK_FAILED: Final = "failed calling webhook"
"""Part of the API server's message (status 500) if an admission webhook with failurePolicy Fail is
unreachable."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The writes that the API server refused in a reconcile."""

    reason: Reason
    message: str


def build_status(
    desired: Desired, observed: Observed, now: datetime, outcome: Outcome | None = None
) -> Manifest:
    """Build the complete status of a PodSet.

    Args:
        desired: Desired state.
        observed: Pods after the writes of this reconcile.
        now: Time of conditions that change, and from which ages are measured.
        outcome: Outcome of the writes; None if there were none.
    """
    facts = assess(desired, observed, now)
    podset = desired.podset
    template_hash = desired.blueprint.template_hash
    current = _list_current(podset)
    time_left = find_time_left(desired, facts, current, now)
    is_overdue = time_left is not None and time_left <= 0
    return {
        "conditions": build_conditions(
            current,
            [
                # Some serializers do not accept members of a StrEnum.
                replace(condition, type=str(condition.type), reason=str(condition.reason))
                for condition in state_conditions(
                    desired, facts, find_refusal(outcome), is_overdue=is_overdue
                )
            ],
            generation=podset.metadata.generation,
            now=now,
        ),
        "observedGeneration": podset.metadata.generation,
        "replicas": len(facts.active),
        "readyReplicas": sum(pod.is_ready for pod in facts.active),
        "availableReplicas": len(facts.available),
        "updatedReplicas": sum(pod.template_hash == template_hash for pod in facts.active),
        "terminatingReplicas": len(facts.terminating),
        **_show_revisions(desired, observed, facts),
        "selector": render_selector(desired.blueprint.selector),
        "podNames": _name_pods(facts.active),
    }


def count_pods(held: Manifest, pods: Sequence[PodView], spec: Manifest, now: datetime) -> Manifest:
    """Build the part of a status that is known even though the spec is invalid.

    Args:
        held: The current status.
        pods: Pods that the PodSet controls.
        spec: The spec, which may be invalid.
        now: Time from which ages are measured.
    """
    active = [pod for pod in pods if pod.is_active]
    seconds, wanted = spec.get("minReadySeconds"), spec.get("replicas")
    available, _ = find_available(active, seconds if type(seconds) is int else 0, now)
    needed = wanted if type(wanted) is int else len(active)
    return {
        "replicas": len(active),
        "readyReplicas": sum(pod.is_ready for pod in active),
        "availableReplicas": len(available),
        # Without a valid template, updated pods cannot be counted: keep the last number, which must
        # not exceed the number of pods.
        "updatedReplicas": min(held.get("updatedReplicas") or 0, len(active)),
        "terminatingReplicas": sum(pod.is_deleting for pod in pods),
        "podNames": _name_pods(active),
        "conditions": [
            _compare_available(len(available), needed),
            Condition.false(ConditionType.PROGRESSING, Reason.INVALID_SPEC),
        ],
    }


def _name_pods(active: Sequence[PodView]) -> list[str]:
    return [pod.name for pod in sorted(active, key=_by_slot)[:POD_NAMES_LIMIT]]


def _show_revisions(desired: Desired, observed: Observed, facts: Assessment) -> Manifest:
    current = find_current(desired, observed, facts)
    update = observed.history.find(desired.blueprint.template_hash)
    named = {"currentRevision": current, "updateRevision": update}
    return {field: revision.name for field, revision in named.items() if revision is not None}


def _list_current(podset: PodSet) -> list[Manifest]:
    """Return the current conditions, without Progressing if a new spec begins new progress."""
    if podset.status is None:
        return []
    conditions: list[Manifest] = podset.status.to_manifest()["conditions"]
    seen = podset.metadata.generation
    return [
        each
        for each in conditions
        if each["type"] != ConditionType.PROGRESSING
        or each.get("observedGeneration") == seen
        or not is_progressing(each)
    ]


def find_refusal(outcome: Outcome | None) -> Refusal | None:
    """Return the first write that the API server refused, or None.

    Errors that a retry resolves do not count, such as a lost connection or a version conflict.
    """
    for failure in outcome.failures if outcome is not None else ():
        error, step = failure.error, failure.step
        if isinstance(error, MutatedByAdmission):
            return Refusal(Reason.FAILED_CREATE, str(error))
        if not isinstance(error, ApiError) or not _is_refusal(error):
            continue
        if isinstance(step, Create):
            return Refusal(Reason.FAILED_CREATE, error.message or str(error))
        if isinstance(step, Delete):
            return Refusal(Reason.FAILED_DELETE, error.message or str(error))
        return Refusal(Reason.FAILED_UPDATE, error.message or str(error))
    return None


def _is_refusal(error: ApiError) -> bool:
    """Return whether users must see an error, for example an unreachable webhook."""
    return isinstance(error, _REFUSALS) or _WEBHOOK_FAILED in error.message


def state_conditions(
    desired: Desired, facts: Assessment, refusal: Refusal | None, *, is_overdue: bool = False
) -> list[Condition]:
    """Build all conditions of a PodSet, always in the same order."""
    ready = _state_ready(desired, facts, refusal)
    progressing = _state_progressing(ready, is_overdue=is_overdue)
    return [
        ready,
        _state_available(desired, facts),
        progressing,
        _state_failure(refusal),
        _state_stalled(desired, facts, progressing),
        _state_conflict(desired, facts),
    ]


def _state_ready(desired: Desired, facts: Assessment, refusal: Refusal | None) -> Condition:
    wanted, available = desired.podset.spec.replicas, len(facts.available)
    exact = len(facts.active) == facts.rollout.target == wanted
    if desired.problem:
        return Condition.false(ConditionType.READY, Reason.INVALID_SPEC, desired.problem)
    if exact and not facts.rollout.pending and available >= wanted:
        return Condition.true(
            ConditionType.READY, Reason.ALL_AVAILABLE, f"{_count(wanted, 'pod')} available"
        )
    reason, message = _explain(desired, facts, refusal)
    return Condition.false(ConditionType.READY, reason, message)


def _explain(desired: Desired, facts: Assessment, refusal: Refusal | None) -> tuple[Reason, str]:
    """Return reason and message of the most important cause why a PodSet is not ready."""
    wanted, active = desired.podset.spec.replicas, len(facts.active)
    if refusal is not None:
        return refusal.reason, refusal.message
    paused = desired.podset.spec.paused
    if paused and not desired.can_create and active < wanted:
        message = "spec.paused is set, so no pods are created from the first template"
        return Reason.PAUSED, message
    if facts.vacancies.waiting:
        return Reason.BACK_OFF, _describe_waiting(facts)
    if active < facts.rollout.target:
        if facts.missing <= 0 and facts.terminating:
            count = _count(len(facts.terminating), "pod")
            pods = _list([pod.name for pod in sorted(facts.terminating, key=_by_slot)])
            return Reason.TERMINATING, f"{count} being deleted must terminate first: {pods}"
        taken = _find_blocking(desired, facts)
        if taken:
            return Reason.NAME_TAKEN, _describe_taken(desired, taken)
        return Reason.SCALING_UP, f"{active} of {_count(facts.rollout.target, 'pod')} exist"
    if facts.surplus:
        return Reason.SCALING_DOWN, f"{_count(facts.surplus, 'pod')} to delete"
    if facts.rollout.pending and paused:
        return Reason.PAUSED, f"spec.paused is set: {_describe_update(facts)}"
    if facts.rollout.pending:
        return Reason.UPDATING, _describe_update(facts)
    return Reason.PODS_NOT_READY, _describe_unready(facts, wanted)


def _state_available(desired: Desired, facts: Assessment) -> Condition:
    needed = max(0, desired.podset.spec.replicas - desired.budget.unavailable)
    return _compare_available(len(facts.available), needed)


def _compare_available(available: int, needed: int) -> Condition:
    message = f"{available} of at least {_count(needed, 'pod')} available"
    if available >= needed:
        return Condition.true(ConditionType.AVAILABLE, Reason.MINIMUM_AVAILABLE, message)
    return Condition.false(ConditionType.AVAILABLE, Reason.MINIMUM_UNAVAILABLE, message)


def _state_progressing(ready: Condition, *, is_overdue: bool) -> Condition:
    """Build the condition Progressing: False if the PodSet is ready, resting or overdue.

    As for a Deployment, a set that the API server refuses to give pods is still progressing: the
    operator tries again, until the deadline.
    """
    if ready.status == "True" or ready.reason in _RESTING:
        return Condition.false(ConditionType.PROGRESSING, ready.reason)
    if is_overdue:
        return Condition.false(ConditionType.PROGRESSING, _OVERDUE, ready.message)
    return Condition.true(ConditionType.PROGRESSING, ready.reason, ready.message)


def _state_failure(refusal: Refusal | None) -> Condition:
    if refusal is None:
        return Condition.false(ConditionType.REPLICA_FAILURE, Reason.AS_EXPECTED)
    return Condition.true(ConditionType.REPLICA_FAILURE, refusal.reason, refusal.message)


def _state_stalled(desired: Desired, facts: Assessment, progressing: Condition) -> Condition:
    if desired.problem:
        return Condition.true(ConditionType.STALLED, Reason.INVALID_SPEC, desired.problem)
    if facts.vacancies.waiting:
        return Condition.true(ConditionType.STALLED, Reason.BACK_OFF, _describe_waiting(facts))
    if progressing.reason == _OVERDUE:
        # Deployments do not have this condition, but tools interpret it as a failure.
        return Condition.true(ConditionType.STALLED, _OVERDUE, progressing.message)
    return Condition.false(ConditionType.STALLED, Reason.AS_EXPECTED)


def _state_conflict(desired: Desired, facts: Assessment) -> Condition:
    # A pod that was released on purpose is only a conflict if it blocks a slot.
    taken = facts.slots.conflicts(facts.window, released=desired.is_strict)
    if not taken:
        return Condition.false(ConditionType.CONFLICT, Reason.AS_EXPECTED)
    return Condition.true(
        ConditionType.CONFLICT, Reason.NAME_TAKEN, _describe_taken(desired, taken)
    )


def _find_blocking(desired: Desired, facts: Assessment) -> list[str]:
    """Describe the pods of other owners whose names prevent a PodSet from creating its pods."""
    if not desired.is_strict or next(facts.slots.free(limit=facts.window), None) is not None:
        return []
    return facts.slots.conflicts(facts.window, released=True)


def _describe_taken(desired: Desired, taken: Sequence[str]) -> str:
    if desired.is_strict:
        remedy = "their slots stay empty until these pods are deleted"
    else:
        remedy = "other slots are used"
    return f"Pod names used by pods of other owners, {remedy}: {_list(taken)}"


def _describe_waiting(facts: Assessment) -> str:
    # The message contains no times, so that it changes only if the pods change.
    waiting = facts.vacancies.waiting
    pods = sorted((failure.pod for failure in waiting), key=_by_slot)
    names = _list([_describe_pod(pod) for pod in pods])
    return (
        f"{_count(len(waiting), 'pod')} ended shortly after the start and will be replaced later:"
        f" {names}"
    )


def _describe_unready(facts: Assessment, wanted: int) -> str:
    available = len(facts.available)
    waiting = [pod for pod in facts.active if pod.name not in facts.available]
    return f"{available} of {_count(wanted, 'pod')} available{_name_first(waiting)}"


def _describe_update(facts: Assessment) -> str:
    """Describe how many pods must still be updated, and which new pod the update waits for."""
    old = {pod.name for pod in facts.rollout.outdated} | facts.available
    waiting = [pod for pod in facts.active if pod.name not in old]
    return f"{_count(facts.rollout.pending, 'pod')} of an older template left{_name_first(waiting)}"


def _name_first(waiting: Sequence[PodView]) -> str:
    """Name one of the pods that are not available yet: preferably one with a known problem."""
    pod = min(waiting, key=lambda pod: (not pod.problem, _by_slot(pod)), default=None)
    if pod is None:
        return ""
    state = "ready, waits for spec.minReadySeconds" if pod.is_ready else f"{pod.phase}, not ready"
    return f"; {pod.name} ({pod.problem or state})"


def _describe_pod(pod: PodView) -> str:
    return f"{pod.name} ({pod.problem})" if pod.problem else pod.name


def _by_slot(pod: PodView) -> tuple[int, str]:
    return (pod.slot if pod.slot is not None else _LAST, pod.name)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    rest = len(names) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown
