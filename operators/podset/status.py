"""What the status of a set says: equal pods give an equal status, so nothing is written twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from libs.common.conditions import Condition, build_conditions
from libs.common.errors import ApiError, MutatedByAdmission
from libs.common.kinds import Manifest
from libs.common.labels import render_selector
from libs.common.plan import Create, Delete, Outcome
from operators.podset.api.v1 import POD_NAMES_LIMIT, ConditionType, PodSet, Reason
from operators.podset.progress import find_time_left
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
"""Names that a message lists before it counts the rest."""
_LAST: Final = 1 << 31
_OVERDUE: Final = Reason.PROGRESS_DEADLINE_EXCEEDED
_REFUSALS: Final = frozenset({400, 403, 422})
_WEBHOOK_FAILED: Final = "failed calling webhook"
"""Words of the API server (500) where a webhook that must agree cannot be asked."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The writes that the API server refused in a reconcile.

    Attributes:
        reason: Reason of the condition.
        message: Words of the API server.
    """

    reason: Reason
    message: str


def build_status(
    desired: Desired, observed: Observed, now: datetime, outcome: Outcome | None = None
) -> Manifest:
    """Build the whole status of a set.

    Args:
        desired: What the spec asks for.
        observed: The pods as they are after the writes of the pass.
        now: Time of conditions that change, and from which ages are measured.
        outcome: What became of the writes; None when there were none.
    """
    facts = assess(desired, observed, now)
    podset = desired.podset
    template_hash = desired.blueprint.template_hash
    current = list_conditions(podset)
    left = find_time_left(desired, facts, current, now)
    return {
        "conditions": build_conditions(
            current,
            [
                # Plain text, so that every serializer takes it.
                replace(condition, type=str(condition.type), reason=str(condition.reason))
                for condition in state_conditions(
                    desired, facts, find_refusal(outcome), is_overdue=left is not None and left <= 0
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
    """Bring the counts of a status up to date if the spec cannot be read.

    Args:
        held: The status that the set shows.
        pods: Pods that the set controls.
        spec: The spec, whatever it holds.
        now: Time from which ages are measured.
    """
    active = [pod for pod in pods if pod.is_active]
    seconds = spec.get("minReadySeconds")
    available, _ = find_available(active, seconds if type(seconds) is int else 0, now)
    return {
        **held,
        "replicas": len(active),
        "readyReplicas": sum(pod.is_ready for pod in active),
        "availableReplicas": len(available),
        # Which template they are of is not known; there cannot be more of them than pods.
        "updatedReplicas": min(held.get("updatedReplicas") or 0, len(active)),
        "terminatingReplicas": sum(pod.is_deleting for pod in pods),
        "podNames": _name_pods(active),
    }


def _name_pods(active: Sequence[PodView]) -> list[str]:
    return [pod.name for pod in sorted(active, key=_by_slot)[:POD_NAMES_LIMIT]]


def _show_revisions(desired: Desired, observed: Observed, facts: Assessment) -> Manifest:
    current = find_current(desired, observed, facts)
    update = observed.history.find(desired.blueprint.template_hash)
    named = {"currentRevision": current, "updateRevision": update}
    return {field: revision.name for field, revision in named.items() if revision is not None}


def list_conditions(podset: PodSet) -> list[Manifest]:
    """List the conditions that a set shows."""
    if podset.status is None:
        return []
    conditions: list[Manifest] = podset.status.to_manifest()["conditions"]
    return conditions


def find_refusal(outcome: Outcome | None) -> Refusal | None:
    """Return the first step that the API server refused permanently reason; None for none.

    Errors that a retry resolves do not count: a lost connection, a conflict of versions.
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
    """Return whether an error must be shown to people, such as a webhook without a response."""
    return error.status in _REFUSALS or _WEBHOOK_FAILED in error.message


def state_conditions(
    desired: Desired, facts: Assessment, refusal: Refusal | None, *, is_overdue: bool = False
) -> list[Condition]:
    """State the conditions of a set, always all of them and in the same order."""
    ready = _state_ready(desired, facts, refusal)
    progressing = _state_progressing(ready, is_overdue=is_overdue)
    return [
        ready,
        _state_available(desired, facts),
        progressing,
        _state_failure(refusal),
        _state_stalled(facts, progressing),
        _state_conflict(desired, facts),
    ]


def _state_ready(desired: Desired, facts: Assessment, refusal: Refusal | None) -> Condition:
    wanted, available = desired.podset.spec.replicas, len(facts.available)
    exact = len(facts.active) == facts.rollout.target == wanted
    if exact and not facts.rollout.pending and available >= wanted:
        return Condition.true(
            ConditionType.READY, Reason.ALL_AVAILABLE, f"{_count(wanted, 'pod')} available"
        )
    reason, message = _explain(desired, facts, refusal)
    return Condition.false(ConditionType.READY, reason, message)


def _explain(desired: Desired, facts: Assessment, refusal: Refusal | None) -> tuple[Reason, str]:
    """Say what stands between a set and its spec, the most pressing first."""
    wanted, active = desired.podset.spec.replicas, len(facts.active)
    if desired.podset.spec.paused:
        return Reason.PAUSED, f"spec.paused is set: {active} of {_count(wanted, 'pod')} exist"
    if refusal is not None:
        return refusal.reason, refusal.message
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
    if facts.rollout.pending:
        return Reason.UPDATING, _describe_update(facts)
    return Reason.PODS_NOT_READY, _describe_unready(facts, wanted)


def _state_available(desired: Desired, facts: Assessment) -> Condition:
    needed = max(0, desired.podset.spec.replicas - desired.budget.unavailable)
    available = len(facts.available)
    message = f"{available} of at least {_count(needed, 'pod')} available"
    if available >= needed:
        return Condition.true(ConditionType.AVAILABLE, Reason.MINIMUM_AVAILABLE, message)
    return Condition.false(ConditionType.AVAILABLE, Reason.MINIMUM_UNAVAILABLE, message)


def _state_progressing(ready: Condition, *, is_overdue: bool) -> Condition:
    """Say whether work is under way: it is unless the set is ready or held up."""
    held_up = {
        Reason.PAUSED,
        Reason.BACK_OFF,
        Reason.FAILED_CREATE,
        Reason.FAILED_DELETE,
        Reason.FAILED_UPDATE,
        Reason.NAME_TAKEN,
    }
    if ready.status == "True" or ready.reason in held_up:
        return Condition.false(ConditionType.PROGRESSING, ready.reason)
    if is_overdue:
        return Condition.false(ConditionType.PROGRESSING, _OVERDUE, ready.message)
    return Condition.true(ConditionType.PROGRESSING, ready.reason, ready.message)


def _state_failure(refusal: Refusal | None) -> Condition:
    if refusal is None:
        return Condition.false(ConditionType.REPLICA_FAILURE, Reason.AS_EXPECTED)
    return Condition.true(ConditionType.REPLICA_FAILURE, refusal.reason, refusal.message)


def _state_stalled(facts: Assessment, progressing: Condition) -> Condition:
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
    """Return, in words, the pods of others that keep a set from having as many pods as it wants."""
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
    # Without times: the message changes with the pods, not with the clock.
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
    """Say how much of an update is left, and which pod of the new template it waits for."""
    old = {pod.name for pod in facts.rollout.outdated} | facts.available
    waiting = [pod for pod in facts.active if pod.name not in old]
    return f"{_count(facts.rollout.pending, 'pod')} of an older template left{_name_first(waiting)}"


def _name_first(waiting: Sequence[PodView]) -> str:
    """Name one of the pods that are waited for: the first in trouble, else the first."""
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
