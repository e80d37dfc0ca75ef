"""Kubernetes conditions: what an object tells people and machines about itself.

A condition is written only when it says something new: `lastTransitionTime` moves with `status`
alone, and equal input gives equal output, so that a settled object is never written again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from libs.common.kinds import Manifest

type ConditionStatus = Literal["True", "False", "Unknown"]

READY: Final = "Ready"
"""The one condition that each kind has: whether it does what its spec asks."""
MESSAGE_LIMIT: Final = 256
"""Longest message that we write; the API allows 32,768 characters, readers do not."""


@dataclass(frozen=True, slots=True)
class Condition:
    """State one fact about an object.

    Attributes:
        type: State in UpperCamel, such as `Ready`.
        status: Whether it holds.
        reason: Cause in UpperCamel, for machines.
        message: Sentence for people; names the field to change, holds no secret and no time.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""

    @classmethod
    def true(cls, type: str, reason: str, message: str = "") -> Condition:
        """Build a condition that holds."""
        return cls(type, "True", reason, message)

    @classmethod
    def false(cls, type: str, reason: str, message: str = "") -> Condition:
        """Build a condition that does not hold."""
        return cls(type, "False", reason, message)

    @classmethod
    def unknown(cls, type: str, reason: str, message: str = "") -> Condition:
        """Build a condition of which nothing can be said now."""
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
        current: Conditions as the object shows them.
        desired: Conditions that the reconciler states, in the order to show.
        generation: `metadata.generation` that was looked at.
        now: Time of the transitions that happen here.

    Returns:
        Only the desired conditions: those of other writers are theirs to keep.
    """
    before = {condition.get("type"): condition for condition in current}
    return [
        _build_condition(before.get(wanted.type), wanted, generation, now) for wanted in desired
    ]


def conditions_of(manifest: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the conditions that an object shows, none before its first status."""
    return (manifest.get("status") or {}).get("conditions") or ()


def find_condition(manifest: Mapping[str, Any], type: str) -> Mapping[str, Any] | None:
    """Return a condition of an object by type, or None."""
    for condition in conditions_of(manifest):
        if condition.get("type") == type:
            return dict(condition)
    return None


def find_begun(
    before: Mapping[str, Any], after: Mapping[str, Any], type: str
) -> Mapping[str, Any] | None:
    """Return a condition that holds in the later version of an object and not in the earlier."""
    was, now = find_condition(before, type), find_condition(after, type)
    if now is None or now.get("status") != "True":
        return None
    return None if was is not None and was.get("status") == "True" else now


def find_turned(
    before: Mapping[str, Any], after: Mapping[str, Any], type: str, reasons: Container[str]
) -> Mapping[str, Any] | None:
    """Return a condition that got one of some reasons between two versions of an object."""
    was, now = find_condition(before, type), find_condition(after, type)
    if now is None or now.get("reason") not in reasons:
        return None
    return None if was is not None and was.get("reason") == now.get("reason") else now


def is_true(manifest: Mapping[str, Any], type: str = READY) -> bool:
    """Return whether a condition holds for the generation that the object has now."""
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
