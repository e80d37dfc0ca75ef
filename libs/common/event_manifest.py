"""Build Events of events.k8s.io/v1; pure functions.

Names are derived from the content (`<object>.<hash>`), so a process that restarts after a crash
finds its earlier Event and increases its count. Names derived from the time would flood the
namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from libs.common.kinds import EVENT, Kind, Manifest, build_object
from libs.common.naming import DNS_SUBDOMAIN_LIMIT, short_hash
from libs.common.redaction import redact_text

type EventType = Literal["Normal", "Warning"]

NOTE_LIMIT: Final = 1024
"""Maximum length of a note in bytes, as enforced by the API server."""
_WORD_LIMIT: Final = 128
_HASH_LENGTH: Final = 16
_DEFAULT_ACTION: Final = "Reconcile"


@dataclass(frozen=True, slots=True)
class Reporter:
    """The reporter of the Event."""

    controller: str
    """A qualified name, such as `podset`."""
    instance: str
    """Process of the controller, such as the name of the pod."""


def build_event(
    reporter: Reporter,
    kind: Kind,
    regarding: Mapping[str, Any],
    event_type: EventType,
    reason: str,
    note: str,
    now: datetime,
    *,
    action: str = "",
    related: Mapping[str, Any] | None = None,
) -> Manifest:
    """Build an Event.

    Args:
        reporter: The reporter of the Event.
        kind: Kind of the object that the Event is about.
        regarding: That object.
        event_type: `Warning` if a person should look at it, else `Normal`.
        reason: Why, in UpperCamel.
        note: One sentence for people; truncated to NOTE_LIMIT, and redacted.
        now: The time of the Event.
        action: The action that was taken, in UpperCamel.
        related: Another object that is involved.
    """
    subject = _build_reference(regarding, kind)
    other = _build_reference(related) if related is not None else None
    # The API server requires the namespace default for Events about cluster-scoped objects.
    namespace = subject.get("namespace") or "default"
    action = (action or _DEFAULT_ACTION)[:_WORD_LIMIT]
    note = _cut(redact_text(note))
    identity = (
        reporter.controller,
        *(subject.get(part, "") for part in ("apiVersion", "kind", "namespace", "name", "uid")),
        *(event_type, reason, action, note, str((other or {}).get("uid", ""))),
    )
    kept = subject["name"][: DNS_SUBDOMAIN_LIMIT - _HASH_LENGTH - 1].rstrip(".-")
    return build_object(
        EVENT,
        f"{kept}.{short_hash(*identity, length=_HASH_LENGTH)}",
        namespace,
        eventTime=render_micro_time(now),
        type=event_type,
        reason=reason[:_WORD_LIMIT],
        action=action,
        note=note,
        regarding=subject,
        reportingController=reporter.controller,
        reportingInstance=(reporter.instance or reporter.controller)[:_WORD_LIMIT],
    ) | ({"related": other} if other else {})


def build_series(count: int, last: datetime) -> Manifest:
    """Build the part of an Event with its count, which is at least 2."""
    return {"count": max(2, count), "lastObservedTime": render_micro_time(last)}


def render_micro_time(time: datetime) -> str:
    """Render a time as a Kubernetes MicroTime."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _build_reference(obj: Mapping[str, Any], kind: Kind | None = None) -> dict[str, str]:
    metadata = obj["metadata"]
    reference = {
        "apiVersion": kind.api_version if kind else obj.get("apiVersion", ""),
        "kind": kind.kind if kind else obj.get("kind", ""),
        "namespace": metadata.get("namespace") or "",
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
    }
    return {name: value for name, value in reference.items() if value}


def _cut(note: str) -> str:
    data = note.encode()
    if len(data) <= NOTE_LIMIT:
        return note
    # A multi-byte character that would be split is dropped.
    return data[: NOTE_LIMIT - 3].decode(errors="ignore") + "..."
