"""Views of live migrations: of the migration object, and of the state in an instance's status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from libs.common.kinds import Key, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import (
    is_set_at,
    map_at,
    maps_at,
    text_at,
    time_at,
)
from libs.contracts.states import ConditionsView

MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"
"""Label of the target launcher pod of a migration: UID of the migration."""
MIGRATED_INSTANCE: Final = "kubevirt.io/vmi-name"
"""Label of a migration: name of the instance."""
MIGRATION_FINALIZER: Final = "kubevirt.io/migrationJobFinalize"
"""Finalizer of KubeVirt on migrations."""


class MigrationPhase(StrEnum):
    """Phases of a migration, in order."""

    UNSET = ""
    PENDING = "Pending"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    PREPARING_TARGET = "PreparingTarget"
    TARGET_READY = "TargetReady"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


_QUOTA: Final = "migrationRejectedByResourceQuota"
"""Condition of a migration whose target pod a ResourceQuota does not allow; it has no message."""
_ABORTED: Final = "migrationAbortRequested"


@dataclass(frozen=True, slots=True)
class MigrationStateView:
    """`status.migrationState` of an instance.

    Attributes:
        source_node: Node that the guest leaves.
        source_pod: Name of the launcher pod that it leaves.
        target_node: Node that the guest moves to; empty while that is not known.
        target_pod: Name of the launcher pod that the guest moves to.
        started: Time at which the copy began, as text; empty before.
        ended: Time at which it ended, as text; empty before.
        completed: Whether it has ended, successfully or not.
        failed: Whether it has ended without moving the guest.
        failure_reason: Why it failed, as reported by KubeVirt.
    """

    uid: str
    source_node: str
    source_pod: str
    target_node: str
    target_pod: str
    started: str
    ended: str
    completed: bool
    failed: bool
    failure_reason: str

    @classmethod
    def parse(cls, status: Mapping[str, Any]) -> Self | None:
        """Parse `migrationState` of a status; None if there is none."""
        state = map_at(status, "migrationState")
        if not state:
            return None
        return cls(
            uid=text_at(state, "migrationUid"),
            source_node=text_at(state, "sourceNode"),
            source_pod=text_at(state, "sourcePod"),
            target_node=text_at(state, "targetNode"),
            target_pod=text_at(state, "targetPod"),
            started=text_at(state, "startTimestamp"),
            ended=text_at(state, "endTimestamp"),
            completed=is_set_at(state, "completed"),
            failed=is_set_at(state, "failed"),
            failure_reason=text_at(state, "failureReason"),
        )

    @property
    def under_way(self) -> bool:
        """Whether it has started and not ended; until then the guest may be on either node."""
        return bool(self.started) and not self.ended

    @property
    def succeeded(self) -> bool:
        """Whether the guest has moved."""
        return self.completed and not self.failed


@dataclass(frozen=True, slots=True)
class MigrationView:
    """The parts of a VirtualMachineInstanceMigration that operators use.

    Attributes:
        deleting: Whether it is being deleted, which aborts it.
        vmi_name: Instance that should move.
        phase: Phase as KubeVirt reports it. See `MigrationPhase`.
        ended_at: Time at which it reached its final phase; None before.
        state: Copy of the state of the instance; None before. KubeVirt writes the last copy, which
            has the reason of a failure, only after the final phase (`updateStatus` of its
            migration controller).
    """

    key: Key
    uid: str
    deleting: bool
    vmi_name: str
    phase: str
    ended_at: datetime | None
    state: MigrationStateView | None
    conditions: ConditionsView

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        """Parse a migration; invalid fields count as absent."""
        return cls(
            key=key_of(manifest),
            uid=uid_of(manifest),
            deleting=is_deleting(manifest),
            vmi_name=text_at(manifest, "spec", "vmiName"),
            phase=text_at(manifest, "status", "phase"),
            ended_at=_find_end(manifest),
            state=MigrationStateView.parse(map_at(manifest, "status")),
            conditions=ConditionsView.parse(manifest),
        )

    @property
    def final(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self.phase in (MigrationPhase.SUCCEEDED, MigrationPhase.FAILED)

    @property
    def blocked(self) -> str:
        """Why KubeVirt does not begin, by the conditions of the migration; empty if none says."""
        for condition in self.conditions:
            if condition.holds and condition.type == _QUOTA:
                return (
                    "a ResourceQuota of the namespace does not allow the second virt-launcher pod"
                )
            if condition.holds and condition.type != _ABORTED:
                return condition.message or condition.type
        return ""

    @property
    def succeeded(self) -> bool:
        """Whether KubeVirt reports success; only the instance tells that the guest has moved."""
        return self.phase == MigrationPhase.SUCCEEDED


def _find_end(manifest: Manifest) -> datetime | None:
    phase = text_at(manifest, "status", "phase")
    if phase not in (MigrationPhase.SUCCEEDED, MigrationPhase.FAILED):
        return None
    for each in maps_at(manifest, "status", "phaseTransitionTimestamps"):
        if text_at(each, "phase") == phase:
            return time_at(each, "phaseTransitionTimestamp")
    return None
