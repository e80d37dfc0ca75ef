"""Statuses: comparison, conditions of other writers, and the status for an error."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, TypeIs

from libs.common.conditions import READY, STALLED, Condition, build_conditions, conditions_of
from libs.common.errors import TerminalError
from libs.common.kinds import Manifest, uid_of

_NOT_CHECKED: Final = "not checked, because the object cannot be reconciled"
_REMEMBERED: Final = 10_000
"""Maximum number of objects whose conditions of other writers are cached."""


class ForeignConditions:
    """Knows which conditions of an object belong to other writers.

    The cache has no managed fields, so an additional condition either belongs to another writer, or
    was set by us before. An apply shows which: conditions that remain in its response are not ours.
    """

    def __init__(self) -> None:
        """Start with no knowledge."""
        self._types: dict[tuple[str, str], frozenset[str]] = {}

    def explain(self, manager: str, held: Manifest, status: Mapping[str, Any]) -> bool:
        """Return whether all additional conditions of an object are known to belong to others."""
        return _list_further(held, status) == self.types_of(manager, held)

    def types_of(self, manager: str, held: Manifest) -> frozenset[str]:
        """Return the types of conditions of an object that are known to belong to others."""
        return self._types.get((manager, uid_of(held)), frozenset())

    def learn(self, manager: str, response: Manifest, status: Mapping[str, Any]) -> None:
        """Learn from the response to an apply of a status."""
        key, further = (manager, uid_of(response)), _list_further(response, status)
        self._types.pop(key, None)
        if further:
            self._types[key] = further
        if len(self._types) > _REMEMBERED:
            # Drop the oldest entry; forgetting it costs one request without effect.
            del self._types[next(iter(self._types))]


def drop_empty(status: Mapping[str, Any]) -> Manifest:
    """Return a status without empty lists and maps.

    People see an empty list as a field without a value. An empty map is worse: if the live object
    has keys, the API server turns it into null, which no schema allows. An omitted field is removed
    as well, because an apply removes fields that its manager set before.
    """
    kept = {name: _without_empty(value) for name, value in status.items()}
    return {name: value for name, value in kept.items() if value not in ([], {})}


def _without_empty(value: object) -> object:
    if isinstance(value, Mapping):
        return drop_empty(value)
    if isinstance(value, list | tuple):
        return [_without_empty(item) for item in value]
    return value


def drop_generations(status: Mapping[str, Any]) -> Manifest:
    """Return a status without observed generations, for kinds without the status subresource.

    Each write of a status is a new generation of such an object, which nobody has observed.
    """
    kept = {name: value for name, value in status.items() if name != "observedGeneration"}
    if conditions := status.get("conditions"):
        kept["conditions"] = [
            {name: value for name, value in each.items() if name != "observedGeneration"}
            for each in conditions
        ]
    return kept


def same_status(held: object, wanted: object) -> bool:
    """Compare two statuses, ignoring empty members and conditions of other writers."""
    if isinstance(held, Mapping) and isinstance(wanted, Mapping):
        names = {*held, *wanted}
        return all(same_status(held.get(name), wanted.get(name)) for name in names)
    if _are_conditions(held) and _are_conditions(wanted):
        types = {condition["type"] for condition in wanted}
        ours = [condition for condition in held if condition["type"] in types]
        return sorted(ours, key=_type_of) == sorted(wanted, key=_type_of)
    return held == wanted or (not held and not wanted and _is_nothing(held) and _is_nothing(wanted))


def build_error_status(
    primary: Mapping[str, Any],
    err: TerminalError,
    *,
    generation: int,
    now: datetime,
    foreign: Collection[str] = (),
) -> Manifest:
    """Build the status of an object that cannot be reconciled.

    Ready is False and Stalled is True. The error contains what the reconcile could still compute.
    All other conditions become Unknown, because nothing keeps them current. Other fields stay.

    Args:
        primary: The object.
        err: Error of the reconcile.
        generation: Observed generation.
        now: The time.
        foreign: Types of conditions of other writers, which are not included: an apply of them
            would claim their ownership.
    """
    status = {**(primary.get("status") or {}), **err.status}
    current = conditions_of(primary)
    known = [
        Condition.false(READY, err.reason, str(err)),
        *err.status.get("conditions", ()),
        Condition.true(STALLED, err.reason, str(err)),
    ]
    settled = {READY, STALLED, *foreign, *(each.type for each in known)}
    unknown = [
        Condition.unknown(each["type"], err.reason, _NOT_CHECKED)
        for each in current
        if each["type"] not in settled
    ]
    conditions = build_conditions(current, [*known, *unknown], generation=generation, now=now)
    # The newest spec was observed: without this field, tools wait indefinitely (kstatus:
    # InProgress). A kind without the field must not get it, because the server would refuse it.
    seen = {"observedGeneration": generation} if "observedGeneration" in status else {}
    return {**status, **seen, "conditions": conditions}


def _list_further(held: Manifest, status: Mapping[str, Any]) -> frozenset[str]:
    """Return the types of conditions that an object has and a status does not."""
    wanted = {_type_of(condition) for condition in status.get("conditions") or ()}
    return frozenset(_type_of(condition) for condition in conditions_of(held)) - wanted


def _are_conditions(value: object) -> TypeIs[list[Manifest]]:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, Mapping) and "lastTransitionTime" in item for item in value)
    )


def _type_of(condition: Mapping[str, Any]) -> str:
    return str(condition["type"])


def _is_nothing(value: object) -> bool:
    return value is None or value in ("", [], {})
