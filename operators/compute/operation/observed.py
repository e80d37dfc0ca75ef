"""The observed state of an Operation, and its next action. Pure."""

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
        alive: Whether that Operation exists and has not ended.
    """

    uid: str
    holder: str
    alive: bool


@dataclass(frozen=True, slots=True)
class Target:
    """The Instance to which an Operation applies.

    Attributes:
        run_uid: UID of the current run of the machine; empty for none.
        agent_since: Time since which the guest agent is connected; None if it is not.
        address_wait: Seconds for which an Operation still waits for the public address to follow
            the run. The wait is short, because another operator moves the address.
    """

    manifest: Manifest
    instance: Instance
    run_uid: str = ""
    run_ending: bool = False
    agent_since: datetime | None = None
    address_wait: float = 0.0

    @property
    def uid(self) -> str:
        """UID of the Instance."""
        return uid_of(self.manifest)

    @property
    def current(self) -> bool:
        """Whether the status is based on the current spec."""
        return self.instance.observed.observed_generation >= self.instance.metadata.generation

    @property
    def powered(self) -> bool:
        """Whether the machine should run."""
        return self.instance.spec.power is Power.RUNNING

    @property
    def running(self) -> bool:
        """Whether the guest has booted, as far as known, and its public address is routed."""
        return self.runs and not self.is_false(ConditionType.GUEST_VERIFIED)

    @property
    def verified(self) -> bool:
        """Whether a probe or the guest agent has shown that the guest of this run has booted."""
        return self.runs and holds_at(self.manifest, ConditionType.GUEST_VERIFIED)

    @property
    def runs(self) -> bool:
        """Whether KubeVirt reports the current run as ready, and the public address follows it."""
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
        """Whether the public address is not moving to this run; other problems do not count."""
        known = bool(condition_at(self.manifest, ConditionType.ADDRESS_READY))
        return known and not self.address_wait

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
        """Whether KubeVirt reports that the running guest needs a restart to get its size."""
        pending = condition_at(self.manifest, ConditionType.RESIZE_PENDING)
        refused = text_at(pending, "reason") in (Reason.HOTPLUG_BLOCKED, Reason.HOTPLUG_REFUSED)
        return refused or self.holds(ConditionType.RESTART_REQUIRED)

    @property
    def resize_blocked(self) -> str:
        """Why the running guest may not have its size yet; empty if no condition reports it."""
        for condition in (ConditionType.RESIZE_PENDING, ConditionType.RESTART_REQUIRED):
            if self.holds(condition):
                return self.message(condition)
        return ""

    @property
    def start_problem(self) -> str:
        """Why KubeVirt cannot start the machine; empty if it reports no problem."""
        reason = text_at(condition_at(self.manifest, ConditionType.RUNNING), "reason")
        return self.message(ConditionType.RUNNING) if reason == Reason.START_FAILED else ""

    @property
    def obstacle(self) -> str:
        """What keeps a machine from starting, such as a Firewall that is not ready; or empty."""
        ready, running = (
            condition_at(self.manifest, each)
            for each in (ConditionType.READY, ConditionType.RUNNING)
        )
        waits = self.powered and text_at(running, "status") == "False"
        other = text_at(ready, "reason") != text_at(running, "reason")
        return text_at(ready, "message") if waits and other and self.current else ""

    def holds(self, condition: ConditionType) -> bool:
        """Return whether a condition is True for the current spec."""
        return holds_at(self.manifest, condition)

    def is_false(self, condition: ConditionType) -> bool:
        """Return whether a condition exists and is False."""
        return text_at(condition_at(self.manifest, condition), "status") == "False"

    def message(self, condition: ConditionType) -> str:
        """Return the message of a condition; empty if it does not exist."""
        return text_at(condition_at(self.manifest, condition), "message")

    def answer(self, directive: Directive) -> DirectiveStatus | None:
        """Return the status of exactly this directive; None if it is not reported yet."""
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
        ready: Whether disks can be created from it.
        volume_snapshot: VolumeSnapshot of the root disk; empty if it has none.
    """

    ready: bool
    volume_snapshot: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The current state of one Operation and its dependencies.

    Attributes:
        target: The Instance; None if it does not exist.
        before: Names of Operations on the same Instance that come first.
        lock: Lease of the Instance; None if nobody holds it.
        migration: Migration of this Operation; None if it does not exist.
        held_up: Why KubeVirt cannot move the guest yet; empty if it reports no problem, None if its
            target pod does not exist.
        size_known: Whether the InstanceSize that a Resize names exists.
        snapshot: Snapshot that a Snapshot takes; None if it does not exist.
        unsavable: Disks that KubeVirt cannot snapshot, with its reason.
        saved: Volumes that a finished snapshot contains; None if unknown.
        restorable: Snapshot that a Restore names; None if it does not exist or was not read.
    """

    target: Target | None = None
    before: tuple[str, ...] = ()
    lock: Lock | None = None
    migration: MigrationView | None = None
    held_up: str | None = None
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
        actions: Actions to execute, each safe to repeat.
        message: Description of the current step for users.
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
    """Wait for a state of the Instance, after executing the given actions."""
    return NextAction(actions=tuple(actions), message=message)


def proceed(step: str, message: str = "", **changes: Any) -> NextAction:
    """Continue with the given step."""
    return NextAction({"step": step, **changes}, message=message, again=True)


def end(outcome: OperationPhase, reason: OperationReason, message: str = "") -> NextAction:
    """Record the outcome; the clean-up follows."""
    changes = {"outcome": outcome, "reason": str(reason), "step": FINISH}
    return NextAction(changes, message=message, again=True)


def fail(reason: OperationReason, message: str) -> NextAction:
    """Record that the Operation failed."""
    return end(OperationPhase.FAILED, reason, message)


def succeed(message: str) -> NextAction:
    """Record that the Operation succeeded."""
    return end(OperationPhase.SUCCEEDED, OperationReason.SUCCEEDED, message)


def is_done(answer: DirectiveStatus | None) -> bool:
    """Return whether a directive was carried out."""
    return answer is not None and answer.state is DirectiveState.DONE


def is_failed(answer: DirectiveStatus | None) -> bool:
    """Return whether a directive cannot be carried out."""
    return answer is not None and answer.state is DirectiveState.FAILED


FINISH = "Finish"
"""The last step of every Operation: withdraw requests and unlock the Instance."""
ROLL_BACK = "RollBack"
"""The step in which an Operation rolls back its changes."""
