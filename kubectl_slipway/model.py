"""The state of an object: conditions, readiness, age. Pure functions on manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

PAUSED = "slipway.dev/paused"
FORCE_FINALIZE = "slipway.dev/force-finalize"

ABNORMAL = frozenset(
    {
        "Blocked",
        "CertificatesExpiring",
        "Conflict",
        "Conflicting",
        "Degraded",
        "Drifted",
        "Evicting",
        "Exhausted",
        "Failed",
        "OutOfRange",
        "Overlapping",
        "ReplicaFailure",
        "RestartRequired",
        "Stalled",
        "SubscriptionsAbandoned",
    }
)
"""Conditions that report a problem while they are True."""
NEUTRAL = frozenset(
    {
        "AgentConnected",
        "Complete",
        "GuestVerified",
        "Migratable",
        "Paused",
        "Progressing",
        "RebuildPending",
        "Released",
        "Remediating",
        "ReplacedDiskKept",
        "ResizePending",
        "Terminating",
    }
)
"""Conditions that report no problem by themselves, whatever their status."""

BENIGN = frozenset(
    {
        *("BrokerNotAsked", "Idle", "NoTarget", "NotAsked", "NotObserved", "NotRequested"),
        *("Paused", "Seeking"),
    }
)
"""Reasons of conditions that are not True because nothing requires them to be True, or because of a
state that another condition reports."""

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Condition:
    """One condition of an object."""

    type: str
    status: str
    reason: str
    message: str
    since: str
    generation: int

    @property
    def bad(self) -> bool:
        """Whether the condition reports a problem."""
        if self.type in NEUTRAL or (self.type != "Ready" and self.reason in BENIGN):
            return False
        return self.status == "True" if self.type in ABNORMAL else self.status == "False"


@dataclass(frozen=True)
class Readiness:
    """Whether an object is ready.

    Attributes:
        status: True, False, Unknown; empty for kinds that have no such state.
        reason: Cause in one word.
        message: Cause for people.
        since: Time of the last change; empty if unknown.
    """

    status: str
    reason: str = ""
    message: str = ""
    since: str = ""

    @property
    def ok(self) -> bool:
        """Whether the object reports no problem."""
        return self.status in ("True", "")


def conditions(manifest: Manifest) -> list[Condition]:
    """Return the conditions of an object."""
    status = manifest.get("status")
    listed = status.get("conditions") if isinstance(status, Mapping) else None
    return [
        Condition(
            each.get("type", ""),
            each.get("status", ""),
            each.get("reason") or "",
            each.get("message") or "",
            each.get("lastTransitionTime") or "",
            int(each.get("observedGeneration") or 0),
        )
        for each in listed or ()
        if isinstance(each, Mapping)
    ]


def condition(manifest: Manifest, type: str) -> Condition | None:
    """Return one condition of an object, or None."""
    return next((each for each in conditions(manifest) if each.type == type), None)


def readiness(manifest: Manifest) -> Readiness:
    """Return whether an object is ready, by the conditions that its kind has."""
    kind, status = str(manifest.get("kind", "")), manifest.get("status") or {}
    for name in ("Ready", "Available", "Complete"):
        found = condition(manifest, name)
        if found is not None:
            return Readiness(found.status, found.reason, found.message, found.since)
    if kind == "PersistentVolumeClaim" and status.get("phase"):
        return Readiness(str(status["phase"] == "Bound"), status["phase"])
    if kind == "Pod" and status.get("phase"):
        return Readiness(str(status["phase"] in ("Running", "Succeeded")), status["phase"])
    if "Ready" in (known_kinds().get(kind) or {}).get("conditions", ()):
        return Readiness("Unknown", "NoStatus", "The operator has not written a status.")
    return Readiness("")


def observed_generation(manifest: Manifest) -> int:
    """Return the observed generation of the status; 0 if the status has none."""
    status = manifest.get("status")
    if not isinstance(status, Mapping):
        return 0
    ready = condition(manifest, "Ready")
    return int(status.get("observedGeneration") or (ready.generation if ready else 0))


def is_unseen(manifest: Manifest) -> bool:
    """Return whether no operator has written a status: it is absent, or the default of the CRD."""
    return manifest.get("status") in (None, {}, {"observedGeneration": 0})


def is_stale(manifest: Manifest) -> bool:
    """Return whether the status describes an older spec."""
    observed = observed_generation(manifest)
    return 0 < observed < int(manifest["metadata"].get("generation") or 0)


def is_deleting(manifest: Manifest) -> bool:
    """Return whether an object is being deleted."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def is_paused(manifest: Manifest) -> bool:
    """Return whether reconciliation of an object is paused by annotation."""
    return (manifest["metadata"].get("annotations") or {}).get(PAUSED) == "true"


def title(manifest: Manifest) -> str:
    """Name an object as `Kind/name`."""
    return f"{manifest.get('kind')}/{manifest['metadata']['name']}"


def at(manifest: Any, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    for part in path.split("."):
        manifest = manifest.get(part) if isinstance(manifest, Mapping) else None
    return manifest


def parse_time(text: str) -> datetime | None:
    """Parse a time of the API; None if there is none."""
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def render_age(text: str, now: datetime) -> str:
    """Render how long ago a time was, as kubectl does: 45s, 12m, 5h, 3d."""
    moment = parse_time(text)
    return "" if moment is None else render_seconds((now - moment).total_seconds())


def render_seconds(seconds: float) -> str:
    """Render a duration as kubectl does."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 172_800 else f"{whole // 86_400}d"


@cache
def known_kinds() -> dict[str, Any]:
    """Return the data about the kinds of the operators: operator, conditions, reasons."""
    text = files("kubectl_slipway").joinpath("kinds.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def meaning(kind: str, reason: str) -> str:
    """Return the meaning of a reason of a kind; empty if unknown."""
    return str((known_kinds().get(kind) or {}).get("reasons", {}).get(reason, ""))


def owner_uids(manifest: Manifest) -> Sequence[str]:
    """Return the UIDs of the owners of an object."""
    return [each.get("uid", "") for each in manifest["metadata"].get("ownerReferences") or ()]
