"""Triggers: names of the moments of a workload at which a fault can be injected. Pure.

The name of a moment contains phase, verb, resource, name and occurrence, but no sequence number. A
run in which unrelated requests change their order therefore has the same moments, and a fault hits
the request that it was planned for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from lab.sweep.wire import Call
from libs.common.kinds import Manifest

type Side = Literal["write", "event"]


@dataclass(frozen=True, slots=True, order=True)
class Trigger:
    """The identity of one write, or of one delivery of a watch event.

    Attributes:
        side: Whether it is a request or an event.
        phase: Phase of the workload.
        action: Verb of the request, or type of the event.
        target: Resource with group and subresource.
        name: Name of the object.
        occurrence: Number of the occurrence in that phase; the first is 1.
    """

    side: Side
    phase: str
    action: str
    target: str
    name: str
    occurrence: int = 1

    def __str__(self) -> str:
        """Render for people: `scale: create pods web-pod-2 #1`."""
        return f"{self.phase}: {self.action} {self.target} {self.name} #{self.occurrence}"

    def to_json(self) -> Manifest:
        """Return the fields for a replay file."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: Manifest) -> Self:
        """Read what `to_json` wrote."""
        return cls(**data)


class Counters:
    """Counters of occurrences, which name each moment."""

    def __init__(self) -> None:
        """Initialize without any moments."""
        self._seen: Counter[Trigger] = Counter()

    def name_write(self, phase: str, call: Call) -> Trigger:
        """Name a request."""
        return self._count(Trigger("write", phase, call.verb, call.target, call.name, 0))

    def name_event(self, phase: str, action: str, target: str, name: str) -> Trigger:
        """Name the delivery of a watch event."""
        return self._count(Trigger("event", phase, action, target, name, 0))

    def _count(self, base: Trigger) -> Trigger:
        self._seen[base] += 1
        return Trigger(base.side, base.phase, base.action, base.target, base.name, self._seen[base])


def common_triggers(runs: Iterable[Sequence[Trigger]]) -> list[Trigger]:
    """Return the moments that occurred in every run, in the order of the first run.

    The number of status writes after a burst of events depends on timing; a fault cannot be aimed
    at writes that only some runs have.
    """
    lists = list(runs)
    if not lists:
        return []
    shared = set(lists[0]).intersection(*map(set, lists[1:]))
    return [trigger for trigger in lists[0] if trigger in shared]
