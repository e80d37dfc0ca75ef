"""The live table of the demo: objects, whether they are ready, since when, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

_READY: Final = ("Ready", "Available")
"""Conditions that say it all, by precedence."""


@dataclass(frozen=True, slots=True)
class Row:
    """The row of one object.

    Attributes:
        ready: Whether its Ready condition is True for what the spec says now.
        state: Reason of that condition, or that there is none yet.
        detail: Message of the condition.
        created: When the object was created.
    """

    kind: str
    name: str
    ready: bool
    state: str
    detail: str
    created: datetime


def build_row(item: Mapping[str, Any]) -> Row:
    """Return the row of one object."""
    metadata = item["metadata"]
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    if "generation" not in metadata and "status" not in item:
        # Such as a ConfigMap, which nobody works on.
        return Row(item["kind"], metadata["name"], True, "applied", "", created)
    condition = _find_condition(item)
    if condition is None:
        return Row(item["kind"], metadata["name"], False, "waiting", "no status yet", created)
    # A condition about an older spec says nothing about this one.
    observed = condition.get("observedGeneration", metadata.get("generation", 0))
    current = observed >= metadata.get("generation", 0)
    ready = condition["status"] == "True" and current
    state = condition.get("reason") or condition["type"]
    return Row(item["kind"], metadata["name"], ready, state, condition.get("message", ""), created)


def render_rows(rows: Iterable[Row], now: datetime) -> Table:
    """Return the table as it is at `now`."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("", "Kind", "Name", "Age", "State", "Message"):
        table.add_column(title, overflow="fold" if title == "Message" else "ellipsis")
    for row in rows:
        mark = "[green]✓[/green]" if row.ready else "[yellow]…[/yellow]"
        age = f"{max(0, int((now - row.created).total_seconds()))} s"
        table.add_row(mark, row.kind, row.name, age, row.state, escape(row.detail))
    return table


def _find_condition(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions: list[Mapping[str, Any]] = item.get("status", {}).get("conditions", [])
    by_type = {condition["type"]: condition for condition in conditions}
    chosen = next((by_type[name] for name in _READY if name in by_type), None)
    return chosen or (conditions[0] if conditions else None)
