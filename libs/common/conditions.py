"""Kubernetes conditions: how an object reports its state to people and programs.

A condition is written only if it changes: `lastTransitionTime` changes only with `status`, and
equal input gives equal output, so that a converged object is never written again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from libs.common.kinds import Manifest

type ConditionStatus = Literal["True", "False", "Unknown"]

READY: Final = "Ready"
"""The condition of every kind that reports whether the object matches its spec."""
STALLED: Final = "Stalled"
"""The condition that is True if waiting longer is of no use: tools such as Flux and Argo CD, which
wait by the rules of kstatus, then report a failure."""
MESSAGE_LIMIT: Final = 32_768
"""Longest message that the API allows. The remedy is often at the end of a message of the API
server, so nothing is left out below that."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of an object.

    Attributes:
        type: State in UpperCamel, such as `Ready`.
        reason: Cause in UpperCamel, for machines.
        message: Sentence for people; names the field to change, and contains no secret and no time.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""

    @classmethod
    def true(cls, type: str, reason: str, message: str = "") -> Condition:
        """Build a condition with status True."""
        return cls(type, "True", reason, message)

    @classmethod
    def false(cls, type: str, reason: str, message: str = "") -> Condition:
        """Build a condition with status False."""
        return cls(type, "False", reason, message)

    @classmethod
    def unknown(cls, type: str, reason: str, message: str = "") -> Condition:
        """Build a condition with status Unknown."""
        return cls(type, "Unknown", reason, message)


def build_conditions(
    current: Iterable[Mapping[str, Any]],
    desired: Sequence[Condition],
    *,
    generation: int,
    now: datetime,
) -> list[Manifest]:
    """Build the conditions of a status, keeping the times of those that did not change.

    Args:
        current: Conditions in the current status.
        desired: Conditions that the reconciler sets, in the order in which they are shown.
        generation: `metadata.generation` that was observed.
        now: Time for conditions whose status changes.

    Returns:
        Only the desired conditions; other writers apply their own conditions.
    """
    before = {condition.get("type"): condition for condition in current}
    return [
        _build_condition(before.get(wanted.type), wanted, generation, now) for wanted in desired
    ]


def build_status(
    manifest: Mapping[str, Any], desired: Sequence[Condition], now: datetime, **fields: Any
) -> Manifest:
    """Build the status of an object: its conditions, observedGeneration, and further fields.

    Args:
        manifest: The object.
        desired: Its conditions, in the order in which they are shown.
        now: Time for conditions whose status changes.
        fields: Further fields of the status, under their names in JSON.
    """
    generation = manifest["metadata"].get("generation", 0)
    current = conditions_of(manifest)
    return {
        "conditions": build_conditions(current, desired, generation=generation, now=now),
        "observedGeneration": generation,
        **fields,
    }


def conditions_of(manifest: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the conditions of an object; none before its first status."""
    return (manifest.get("status") or {}).get("conditions") or ()


def find_condition(manifest: Mapping[str, Any], type: str) -> Mapping[str, Any] | None:
    """Return a condition of an object by type, or None."""
    for condition in conditions_of(manifest):
        if condition.get("type") == type:
            return dict(condition)
    return None


def evaluate_stalled(
    current: Iterable[Mapping[str, Any]],
    ready: Mapping[str, Any],
    *,
    seconds: float,
    now: datetime,
) -> tuple[Manifest, float]:
    """Build the condition Stalled of an object that is not ready, and the seconds until it is True.

    The deadline is extended by each change of the spec or of the reason of Ready. Stalled has the
    reason of Ready, and its `lastTransitionTime` is the time of the last such change: so the result
    is the same after a restart of the operator or a change of the leader.

    Args:
        current: Conditions in the current status.
        ready: The new condition Ready.
        seconds: Time without a change after which the object is stalled.
        now: The time.
    """
    fields = ("reason", "observedGeneration")
    held = next((each for each in current if each.get("type") == STALLED), None)
    if held is None or any(held.get(field) != ready.get(field) for field in fields):
        held = {"status": "False", "lastTransitionTime": render_time(now)}
    moment, left = held["lastTransitionTime"], 0.0
    if held["status"] != "True":
        left = seconds - (now - parse_time(moment)).total_seconds()
        moment = moment if left > 0 else render_time(now)
    stalled = {**ready, "type": STALLED, "lastTransitionTime": moment}
    if left > 0:
        return {**stalled, "status": "False", "message": ""}, left
    return {**stalled, "status": "True"}, 0.0


def find_new_condition(
    before: Mapping[str, Any], after: Mapping[str, Any], type: str
) -> Mapping[str, Any] | None:
    """Return a condition that became True between two versions of an object."""
    was, now = find_condition(before, type), find_condition(after, type)
    if now is None or now.get("status") != "True":
        return None
    return None if was is not None and was.get("status") == "True" else now


def find_new_reason(
    before: Mapping[str, Any], after: Mapping[str, Any], type: str, reasons: Container[str]
) -> Mapping[str, Any] | None:
    """Return a condition whose reason changed to one of the given reasons between two versions."""
    was, now = find_condition(before, type), find_condition(after, type)
    if now is None or now.get("reason") not in reasons:
        return None
    return None if was is not None and was.get("reason") == now.get("reason") else now


def is_true(manifest: Mapping[str, Any], type: str = READY) -> bool:
    """Return whether a condition is True for the current generation of the object."""
    condition = find_condition(manifest, type)
    if condition is None or condition.get("status") != "True":
        return False
    observed = condition.get("observedGeneration")
    return observed is None or observed >= manifest.get("metadata", {}).get("generation", 0)


def render_time(moment: datetime) -> str:
    """Render a time as Kubernetes does: UTC, whole seconds, `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Parse a time of the API, with or without fractions of a second."""
    return datetime.fromisoformat(text)


def _build_condition(
    before: Mapping[str, Any] | None, wanted: Condition, generation: int, now: datetime
) -> Manifest:
    unchanged = before is not None and before.get("status") == wanted.status
    moment = before.get("lastTransitionTime") if before is not None and unchanged else None
    return {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": _shorten(wanted.message),
        "observedGeneration": generation,
        "lastTransitionTime": moment or render_time(now),
    }


def _shorten(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
