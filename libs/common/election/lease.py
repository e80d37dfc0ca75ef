"""The Lease object as the election reads and writes it; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from libs.common.kinds import LEASE, Key, Manifest


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says about leadership."""

    holder: str = ""
    """Identity of the leader; empty when the Lease is free."""
    duration_seconds: float = 0
    """How long the holder's leadership lasts after a renewal; 0 when not told."""
    transitions: int = 0
    """How often the leadership passed to another holder."""
    acquire_time: str = ""
    """When the holder acquired it, by the holder's wall clock."""
    renew_time: str = ""
    """When the holder renewed it, by the holder's wall clock; only ever compared for equality."""
    resource_version: str = ""
    """Version of the object; empty when there is no such object."""

    @property
    def exists(self) -> bool:
        """Whether there is such an object."""
        return bool(self.resource_version)

    def same_term(self, other: "LeaseRecord") -> bool:
        """Return whether nobody acquired or renewed between two records.

        The version of the object does not count: who only edits its labels must not prolong the
        leadership of a holder that is dead.
        """
        return (self.holder, self.acquire_time, self.renew_time, self.transitions) == (
            other.holder,
            other.acquire_time,
            other.renew_time,
            other.transitions,
        )


def parse_lease(manifest: Mapping[str, object]) -> LeaseRecord:
    """Parse a Lease; what is absent or of a wrong type counts as not told."""
    spec = manifest.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    duration = spec.get("leaseDurationSeconds")
    transitions = spec.get("leaseTransitions")
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        duration_seconds=max(duration, 0) if isinstance(duration, int) else 0,
        transitions=max(transitions, 0) if isinstance(transitions, int) else 0,
        acquire_time=str(spec.get("acquireTime") or ""),
        renew_time=str(spec.get("renewTime") or ""),
        resource_version=str(metadata.get("resourceVersion") or ""),
    )


def build_lease(key: Key, record: LeaseRecord, base: Mapping[str, object] | None) -> Manifest:
    """Build the Lease to write.

    Args:
        key: Its namespace and name.
        record: What it shall say; its resource version is the precondition.
        base: The object as it was read, whose labels, annotations and other fields stay.
    """
    old = dict(base or {})
    metadata = old.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    metadata |= {"namespace": key.namespace, "name": key.name}
    metadata.pop("managedFields", None)
    metadata.pop("resourceVersion", None)
    if record.exists:
        metadata["resourceVersion"] = record.resource_version
    else:
        metadata = {"namespace": key.namespace, "name": key.name}
    spec = old.get("spec")
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": metadata,
        "spec": (dict(spec) if isinstance(spec, Mapping) else {})
        | {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": max(1, ceil(record.duration_seconds)),
            "leaseTransitions": record.transitions,
            "acquireTime": record.acquire_time,
            "renewTime": record.renew_time,
        },
    }


def render_time(wall: datetime, after: str = "") -> str:
    """Render a time as Kubernetes' MicroTime, later than another one.

    A renewal must change the record even if the wall clock stands still or goes back, else a
    standby would take it for no renewal.

    Args:
        wall: The wall clock.
        after: The time of the renewal before.
    """
    try:
        floor = datetime.fromisoformat(after) + timedelta(microseconds=1)
        wall = max(wall, floor)
    except (ValueError, TypeError, OverflowError):
        pass
    return wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
