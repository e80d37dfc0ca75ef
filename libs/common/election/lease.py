"""The fields of the Lease that the election reads and writes; pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from libs.common.kinds import LEASE, Key, Manifest


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The leadership as recorded in a Lease."""

    holder: str = ""
    """Identity of the leader; empty if the Lease is free."""
    duration_seconds: float = 0
    """Duration of the leadership after a renewal; 0 if unknown."""
    transitions: int = 0
    """Number of changes of the holder."""
    acquire_time: str = ""
    """Time of acquisition by the holder's wall clock."""
    renew_time: str = ""
    """Time of the renewal by the holder's wall clock; only compared for equality."""
    resource_version: str = ""
    """Version of the object; empty if it does not exist."""

    @property
    def exists(self) -> bool:
        """Whether the Lease exists."""
        return bool(self.resource_version)

    def same_term(self, other: "LeaseRecord") -> bool:
        """Return whether nobody acquired or renewed the Lease between two records.

        The version of the object is ignored: an edit of its labels must not prolong the leadership
        of a dead holder.
        """
        return (self.holder, self.acquire_time, self.renew_time, self.transitions) == (
            other.holder,
            other.acquire_time,
            other.renew_time,
            other.transitions,
        )


def parse_lease(manifest: Mapping[str, object]) -> LeaseRecord:
    """Parse a Lease; a field that is absent or has a wrong type gets its default."""
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
        key: Namespace and name of the Lease.
        record: Content of the Lease; its resource version is the precondition.
        base: The object as it was read; its labels, annotations and other fields are kept.
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
    """Render a time as a Kubernetes MicroTime that is later than another time.

    A renewal must change the record even if the wall clock stands still or goes back; otherwise a
    standby would not notice it.

    Args:
        wall: The wall clock.
        after: The time of the previous renewal.
    """
    try:
        floor = datetime.fromisoformat(after) + timedelta(microseconds=1)
        wall = max(wall, floor)
    except (ValueError, TypeError, OverflowError):
        pass
    return wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
