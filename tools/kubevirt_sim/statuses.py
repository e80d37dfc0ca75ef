"""Conditions and times as KubeVirt writes them: with `lastProbeTime`, without generations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from libs.common.kinds import Manifest

_PROBED: Final = frozenset({"AgentConnected"})
"""Conditions whose beginning KubeVirt writes as the time of a probe, and never as a transition."""


def render_time(moment: datetime) -> str:
    """Render a time as Kubernetes does, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_condition(
    type_: str, status: bool | str, reason: str = "", message: str = ""
) -> Manifest:
    """Build a condition without its times, which `merge_conditions` fills in."""
    text = status if isinstance(status, str) else str(status)
    found: Manifest = {"type": type_, "status": text}
    if reason:
        found["reason"] = reason
    if message:
        found["message"] = message
    return found


def merge_conditions(
    held: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]], now: datetime
) -> list[Manifest]:
    """Give conditions their times: that of a status which has not changed is kept."""
    before = {condition.get("type"): condition for condition in held}
    merged = []
    for condition in wanted:
        old = before.get(condition["type"], {})
        same = old.get("status") == condition["status"]
        probed = condition["type"] in _PROBED
        given, empty = ("lastProbeTime", "lastTransitionTime")[:: 1 if probed else -1]
        since = old.get(given) if same else None
        merged.append(
            {
                given: since or render_time(now),
                empty: None,
                **{name: condition[name] for name in condition if "Time" not in name},
            }
        )
    return merged


def find_condition(manifest: Mapping[str, Any], type_: str) -> Manifest | None:
    """Return the condition of a type, or None."""
    for condition in (manifest.get("status") or {}).get("conditions") or ():
        if condition.get("type") == type_:
            return dict(condition)
    return None


def holds(manifest: Mapping[str, Any], type_: str) -> bool:
    """Tell whether the condition of a type is true."""
    found = find_condition(manifest, type_)
    return found is not None and found.get("status") == "True"
