"""What was seen around an Operation, and what an Operation decides to do next; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from libs.common.actions import Action
from libs.common.kinds import Manifest, uid_of
from libs.common.reading import condition_at, holds_at, text_at
from libs.contracts.machine_snapshots import MachineSnapshotView
from libs.contracts.migrations import MigrationView
from operators.compute.api.directives import Directive, DirectiveState, DirectiveStatus
from operators.compute.api.instance import Instance, Power
from operators.compute.api.operation import OperationPhase, OperationReason
from operators.compute.api.reasons import ConditionType, Reason


@dataclass(frozen=True, slots=True)
class Lock:
    """The Lease with which one Operation reserves an Instance.

    Attributes:
        uid: Which incarnation it is.
        holder: UID of the Operation that holds it.
        alive: Whether there is an Operation of that UID that has not ended.
    """

    uid: str
    holder: str
    alive: bool


@dataclass(frozen=True, slots=True)
class Target:
    """The Instance to which an Operation applies.

    Attributes:
        manifest: The Instance as it is.
        instance: The same, read.
        run_uid: UID of the run of the machine that there is; empty for none.
        run_ending: Whether that run is being ended.
        agent_since: Since when the agent of the guest is connected; None while it is not.
    """

    manifest: Manifest
    instance: Instance
    run_uid: str = ""
    run_ending: bool = False
    agent_since: datetime | None = None

    @property
    def uid(self) -> str:
        """Which incarnation the Instance is."""
        return uid_of(self.manifest)

    @property
    def current(self) -> bool:
        """Whether the status is about the current spec."""
        return self.instance.observed.observed_generation >= self.instance.metadata.generation

    @property
    def powered(self) -> bool:
        """Whether the machine should run."""
        return self.instance.spec.power is Power.RUNNING

    @property
    def running(self) -> bool:
        """Whether the guest has booted as far as that can be known, with its public address."""
        return self.runs and not self.is_false(ConditionType.GUEST_VERIFIED)

    @property
    def verified(self) -> bool:
        """Whether a probe or the guest agent has shown that the guest of this run has booted."""
        return self.runs and holds_at(self.manifest, ConditionType.GUEST_VERIFIED)

    @property
    def runs(self) -> bool:
        """Whether KubeVirt calls the current run ready, and the public address follows it."""
        status = self.instance.observed
        return (
            bool(self.run_uid)
            and not self.run_ending
            and status.vmi_uid == self.run_uid
            and holds_at(self.manifest, ConditionType.RUNNING)
            and self._address_follows
        )

    @property
    def _address_follows(self) -> bool:
        """Whether the public address is not on its way to this run; other faults stay."""
        condition = condition_at(self.manifest, ConditionType.ADDRESS_READY)
        return bool(condition) and text_at(condition, "reason") != Reason.ADDRESS_UNBOUND

    @property
    def stopped(self) -> bool:
        """Whether the machine is off and stays so."""
        reason = text_at(condition_at(self.manifest, ConditionType.RUNNING), "reason")
        off = self.current and not self.run_uid and reason == Reason.STOPPED
        return off or self.shut_down

    @property
    def shut_down(self) -> bool:
        """Whether the guest of the current run shut itself down, and the machine stays off."""
        reason = text_at(condition_at(self.manifest, ConditionType.RUNNING), "reason")
        same = bool(self.run_uid) and self.instance.observed.vmi_uid == self.run_uid
        return self.current and same and reason == Reason.GUEST_SHUT_DOWN

    @property
    def resize_refused(self) -> bool:
        """Whether KubeVirt says that the running guest cannot have its size without a restart."""
        pending = condition_at(self.manifest, ConditionType.RESIZE_PENDING)
        refused = text_at(pending, "reason") in (Reason.HOTPLUG_BLOCKED, Reason.HOTPLUG_REFUSED)
        return refused or self.holds(ConditionType.RESTART_REQUIRED)

    @property
    def resize_blocked(self) -> str:
        """Why the running guest may not have its size yet; empty if nothing says so."""
        for condition in (ConditionType.RESIZE_PENDING, ConditionType.RESTART_REQUIRED):
            if self.holds(condition):
                return self.message(condition)
        return ""

    def holds(self, condition: ConditionType) -> bool:
        """Return whether a condition holds for the spec as it is now."""
        return holds_at(self.manifest, condition)

    def is_false(self, condition: ConditionType) -> bool:
        """Return whether a condition is stated and does not hold."""
        return text_at(condition_at(self.manifest, condition), "status") == "False"

    def message(self, condition: ConditionType) -> str:
        """Return the message of a condition; empty when it is not stated."""
        return text_at(condition_at(self.manifest, condition), "message")

    def answer(self, directive: Directive) -> DirectiveStatus | None:
        """Return what became of exactly this directive; None while that is not known."""
        if not self.current or self.instance.spec.directive(directive.kind) != directive:
            return None
        for status in self.instance.observed.directives:
            if status.kind is directive.kind and status.token == directive.token:
                return status
        return None


@dataclass(frozen=True, slots=True)
class Restorable:
    """The snapshot that a Restore names.

    Attributes:
        ready: Whether disks can be made of it.
        volume_snapshot: VolumeSnapshot of the root disk; empty if it has none.
    """

    ready: bool
    volume_snapshot: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The current state of one Operation and its dependencies.

    Attributes:
        target: Instance of that name; None when there is none.
        before: Operations on the same Instance that come first, by name.
        lock: Lease of the Instance; None when nobody holds it.
        migration: Migration of this Operation; None when there is none.
        size_known: Whether the InstanceSize that a Resize names exists.
        snapshot: Snapshot that a Snapshot takes; None when there is none of that name.
        unsavable: Disks that KubeVirt cannot take a snapshot of, with its reason.
        saved: Volumes that a finished snapshot holds; None while that is not known.
        restorable: Snapshot that a Restore names; None when there is none, or it was not asked for.
    """

    target: Target | None = None
    before: tuple[str, ...] = ()
    lock: Lock | None = None
    migration: MigrationView | None = None
    size_known: bool = True
    snapshot: MachineSnapshotView | None = None
    unsavable: Mapping[str, str] = field(default_factory=dict)
    saved: frozenset[str] | None = None
    restorable: Restorable | None = None


@dataclass(frozen=True, slots=True)
class NextAction:
    """The next action of an Operation: record data, act, or wait.

    Attributes:
        changes: Fields of the status to set; written before the actions that depend on them.
        actions: Steps to take, each safe to repeat.
        message: The current step, for users.
        again: Whether to decide again immediately, because the status has changed.
        look_again: Seconds until the next reconcile if no event arrives.
        asks_guest: Whether to ask the guest to reboot after the changes are written.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    message: str = ""
    again: bool = False
    look_again: float | None = None
    asks_guest: bool = False


def wait(message: str, *actions: Action) -> NextAction:
    """Wait for something, after taking some steps towards it."""
    return NextAction(actions=tuple(actions), message=message)


def proceed(step: str, message: str = "", **changes: Any) -> NextAction:
    """Continue with a step."""
    return NextAction({"step": step, **changes}, message=message, again=True)


def end(outcome: OperationPhase, reason: OperationReason, message: str = "") -> NextAction:
    """Write the outcome down; what is left to tidy up follows."""
    changes = {"outcome": outcome, "reason": str(reason), "step": FINISH}
    return NextAction(changes, message=message, again=True)


def fail(reason: OperationReason, message: str) -> NextAction:
    """Write down that the Operation failed."""
    return end(OperationPhase.FAILED, reason, message)


def succeed(message: str) -> NextAction:
    """Write down that the Operation succeeded."""
    return end(OperationPhase.SUCCEEDED, OperationReason.SUCCEEDED, message)


def is_done(answer: DirectiveStatus | None) -> bool:
    """Return whether a directive was carried out."""
    return answer is not None and answer.state is DirectiveState.DONE


def is_failed(answer: DirectiveStatus | None) -> bool:
    """Return whether a directive cannot be carried out."""
    return answer is not None and answer.state is DirectiveState.FAILED


FINISH = "Finish"
"""The last step of every Operation: requests are withdrawn, the Instance is given free."""
ROLL_BACK = "RollBack"
"""The step in which an Operation undoes what it did."""
