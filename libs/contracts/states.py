"""Views of the conditions of objects that other controllers write; invalid parts are ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from libs.common.reading import maps_at, text_at


@dataclass(frozen=True, slots=True)
class ConditionView:
    """One condition of an object.

    Attributes:
        type: Such as `Ready`.
        status: `True`, `False` or `Unknown`.
        reason: Cause in one word; empty where the writer gives none.
        message: Message of the condition, as its writer set it.
        since: Last transition time, as text; empty if there is none.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Parse a condition; invalid fields count as absent."""
        return cls(
            type=text_at(manifest, "type"),
            status=text_at(manifest, "status"),
            reason=text_at(manifest, "reason"),
            message=text_at(manifest, "message"),
            since=text_at(manifest, "lastTransitionTime"),
        )

    @property
    def holds(self) -> bool:
        """Whether the status is True; Unknown does not count."""
        return self.status == "True"


@dataclass(frozen=True, slots=True)
class ConditionsView:
    """The conditions of an object by type."""

    items: tuple[ConditionView, ...] = ()

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Parse `status.conditions`; invalid entries are left out."""
        read = (ConditionView.parse(item) for item in maps_at(manifest, "status", "conditions"))
        return cls(tuple(condition for condition in read if condition.type))

    def __iter__(self) -> Iterator[ConditionView]:
        """Iterate over the conditions in the order of the object."""
        return iter(self.items)

    def find(self, type_: str) -> ConditionView | None:
        """Return the condition of a type, or None."""
        return next((held for held in self.items if held.type == type_), None)

    def holds(self, type_: str) -> bool:
        """Return whether the condition of a type exists and is True."""
        found = self.find(type_)
        return found is not None and found.holds
