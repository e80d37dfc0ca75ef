"""Conditions and times as KubeVirt writes them: with `lastProbeTime`, without generations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from libs.common.conditions import render_time
from libs.common.kinds import Manifest

_TIMES: Final[Mapping[str, frozenset[str]]] = {
    "AgentConnected": frozenset({"lastProbeTime"}),
    "Paused": frozenset({"lastProbeTime", "lastTransitionTime"}),
    **dict.fromkeys(
        (
            "DataVolumesReady",
            "HotMemoryChange",
            "HotVCPUChange",
            "LiveMigratable",
            "StorageLiveMigratable",
        ),
        frozenset[str](),
    ),
}
"""Times that KubeVirt gives a condition; those not named have the time of their transition."""
_FIELDS: Final = ("lastProbeTime", "lastTransitionTime")


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
    """Set the times of conditions; the time is kept if the status has not changed."""
    before = {condition.get("type"): condition for condition in held}
    merged = []
    for condition in wanted:
        old = before.get(condition["type"], {})
        same = old.get("status") == condition["status"]
        given = _TIMES.get(condition["type"], frozenset(_FIELDS[1:]))
        if condition.get("reason") == "VMINotExists":
            given = frozenset(_FIELDS)
        times = {
            name: ((old.get(name) if same else None) or render_time(now)) if name in given else None
            for name in _FIELDS
        }
        words = {name: condition[name] for name in condition if "Time" not in name}
        merged.append({**times, **words})
    return merged
