"""The rules of the election as a state machine without I/O, clock or randomness.

Three rules prevent two replicas from leading at the same time, whatever their wall clocks show:

* The leader measures from the *start* of its last successful renewal, and stops leading
  `renew_deadline` later.
* A standby measures from the moment at which it *first saw* a record, which is later than the
  leader's renewal, and takes over `lease_duration` later at the earliest.
* Every write contains the resource version of the record on which the decision is based.

Both use a local clock that never jumps, so only its rate matters: leaderships cannot overlap unless
the rates of two clocks differ by more than lease_duration / renew_deadline, a factor of 1.5.

If the Lease is deleted, a standby that knows its holder still waits for the full duration.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from libs.common.election.lease import LeaseRecord, render_time

_JITTER: Final = 0.2
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of the election in seconds; the settings validate their relations."""

    lease_duration: float = 15.0
    """Time that a standby waits after the last renewal that it saw."""
    renew_deadline: float = 10.0
    """Time after which the leader stops leading if no renewal succeeds."""
    retry_period: float = 2.0
    """Time between two attempts to acquire or renew."""


class LeaseState(StrEnum):
    """The state of a Lease, as a replica sees it."""

    FREE = "free"
    """Nobody holds the Lease, or it has expired."""
    MINE = "mine"
    """This replica holds the Lease."""
    HELD = "held"
    """Another replica holds the Lease."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The state of a Lease, and the time until which it is valid."""

    state: LeaseState
    expires_at: float = 0.0
    """Time of the local clock at which a HELD Lease becomes free if it is not renewed."""


def decide(
    record: LeaseRecord, observed_at: float, now: float, me: str, default_duration: float
) -> Decision:
    """Decide what a record means.

    Args:
        record: The record as it was last read.
        observed_at: Time of the local clock at which this term was first seen.
        now: The local clock.
        me: Identity of the replica.
        default_duration: Used if the record contains no duration.
    """
    if not record.holder:
        return Decision(LeaseState.FREE)
    if record.holder == me:
        return Decision(LeaseState.MINE)
    expires_at = observed_at + (record.duration_seconds or default_duration)
    return Decision(LeaseState.FREE if now >= expires_at else LeaseState.HELD, expires_at)


class Verb(StrEnum):
    """Kinds of steps."""

    READ = "read"
    CREATE = "create"
    REPLACE = "replace"
    WAIT = "wait"
    STOP = "stop"
    """The leadership is lost, and this process must not lead again."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next step of a replica."""

    verb: Verb
    seconds: float = 0.0
    """Time to wait, or time-out of the request."""
    record: LeaseRecord = field(default_factory=LeaseRecord)
    """Record to write."""


class LeaseCore:
    """The election as seen by one replica.

    Call `next_step`, execute the step, report its result by `was_read`, `was_written` or `failed`,
    and repeat. Times are seconds of the local clock. `is_leader` can be called from any thread.
    """

    def __init__(self, me: str, timing: Timing) -> None:
        """Start as a standby without a record."""
        self.me = me
        self.timing = timing
        self.lost_reason = ""
        """Why the leadership was lost; empty if it was not."""
        self._record = LeaseRecord()
        self._observed_at = _NEVER
        # Whether the record can be updated without reading it again.
        self._fresh = False
        self._conflicts = 0
        self._wait_until = _NEVER
        self._leading = False
        # The only value that other threads read: one read is atomic, two would not be.
        self._lead_until = _NEVER
        self._renewed_at = _NEVER

    @property
    def record(self) -> LeaseRecord:
        """The record as it was last read or written."""
        return self._record

    @property
    def leading(self) -> bool:
        """Whether the Lease was acquired and neither lost nor released since."""
        return self._leading

    @property
    def was_leader(self) -> bool:
        """Whether this replica led at any time."""
        return self._renewed_at != _NEVER

    @property
    def expires_at(self) -> float:
        """The earliest time at which another replica can take over."""
        return self._renewed_at + self.timing.lease_duration

    def is_leader(self, now: float) -> bool:
        """Return whether this replica leads, by its own deadline."""
        return now < self._lead_until

    def next_step(self, now: float, wall: datetime, chance: float) -> Step:
        """Return what to do next.

        Args:
            now: The local clock.
            wall: The wall clock, for times that people read.
            chance: A random number from 0 to 1, which spreads the requests of replicas.
        """
        if self._leading and now >= self._lead_until:
            self.lose(f"no renewal succeeded within {self.timing.renew_deadline:g} s")
        if self.lost_reason:
            return Step(Verb.STOP)
        if now < self._wait_until:
            return Step(Verb.WAIT, self._wait_until - now)
        if not self._fresh:
            return Step(Verb.READ, self._request_timeout(now))
        decision = decide(self._record, self._observed_at, now, self.me, self.timing.lease_duration)
        if decision.state is LeaseState.HELD:
            self._fresh = False
            self._wait_until = min(self._retry_at(now, chance), decision.expires_at)
            return Step(Verb.WAIT, max(0.0, self._wait_until - now))
        verb = Verb.REPLACE if self._record.exists else Verb.CREATE
        return Step(verb, self._request_timeout(now), self._claim(wall))

    def was_read(self, record: LeaseRecord | None, now: float) -> None:
        """Process the response to a read.

        Args:
            record: The record; None if the Lease does not exist.
            now: The local clock after the response came.
        """
        # The last holder of a deleted Lease may still consider itself the leader.
        seen = replace(self._record, resource_version="") if record is None else record
        if not seen.same_term(self._record):
            self._observed_at = now
        self._record = seen
        self._fresh = True
        if self._leading and seen.holder != self.me:
            self.lose(f"the Lease is held by {seen.holder!r}")

    def was_written(self, record: LeaseRecord, started: float, now: float, chance: float) -> None:
        """Process the response to a successful write.

        Args:
            record: The record after the write.
            started: The local clock before the request was sent.
            now: The local clock after the response came.
            chance: As for next_step().
        """
        self._record = record
        self._observed_at = now
        self._fresh = True
        self._conflicts = 0
        self._renewed_at = started
        self._wait_until = self._retry_at(started, chance)
        self._leading = True
        self._lead_until = started + self.timing.renew_deadline

    def failed(self, now: float, chance: float, *, conflict: bool = False) -> None:
        """Process the failure of a request, which may have been executed nevertheless.

        Args:
            now: The local clock.
            chance: As for next_step().
            conflict: The object was changed or deleted since it was read.
        """
        self._fresh = False
        self._conflicts = self._conflicts + 1 if conflict else 0
        # A leader reads the Lease immediately to see who wrote; frequent writes must not make it
        # spin.
        at_once = self._leading and self._conflicts == 1
        self._wait_until = now if at_once else self._retry_at(now, chance)
        if self._leading:
            # Sleeping past the deadline would only delay the loss of the leadership.
            self._wait_until = min(self._wait_until, self._lead_until)

    def lose(self, reason: str) -> None:
        """Stop leading permanently."""
        self._lead_until = _NEVER
        self._leading = False
        self.lost_reason = reason

    def release(self, wall: datetime) -> LeaseRecord | None:
        """Stop leading, and return the record that hands the Lease over, or None.

        There is nothing to hand over if this replica does not hold the Lease.
        """
        self._lead_until = _NEVER
        self._leading = False
        if self._record.holder != self.me or not self._record.exists:
            return None
        renewed = render_time(wall, self._record.renew_time)
        return replace(self._record, holder="", renew_time=renewed)

    def _claim(self, wall: datetime) -> LeaseRecord:
        old = self._record
        renewed = render_time(wall, old.renew_time)
        mine = old.holder == self.me
        first = not old.holder and not old.acquire_time and not old.transitions
        return LeaseRecord(
            holder=self.me,
            duration_seconds=self.timing.lease_duration,
            transitions=old.transitions if mine or first else old.transitions + 1,
            acquire_time=old.acquire_time if mine else renewed,
            renew_time=renewed,
            resource_version=old.resource_version,
        )

    def _request_timeout(self, now: float) -> float:
        """Limit a request to half of the remaining time, so that another attempt is possible.

        With a limit of one retry period, the leader would lose the Lease if the API server is slow
        but does respond.
        """
        left = self.timing.renew_deadline
        if self._leading:
            left = max(0.0, self._lead_until - now)
        return min(left, max(self.timing.retry_period, left / 2))

    def _retry_at(self, now: float, chance: float) -> float:
        return now + self.timing.retry_period * (1 + _JITTER * chance)
