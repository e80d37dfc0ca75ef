"""The rules of the election as a state machine without I/O, clock or chance.

What keeps two replicas from leading at the same time, whatever their wall clocks say:

* The leader counts its leadership from the *start* of the last renewal that succeeded, and gives
  up `renew_deadline` later.
* A standby counts from the moment at which it *first saw* a record, which is later than the
  leader's renewal, and takes over no sooner than `lease_duration` after it.
* Every write carries the resource version of the record that the decision was made on.

Both use a local clock that never jumps, so only its rate matters: leaderships cannot overlap as
long as clocks run equally fast to within lease_duration / renew_deadline, which is a factor of 1.5.

A Lease that is deleted does not set a standby free that knows its holder: it waits all the same.
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
    """How long things take, in seconds; the settings check their relations."""

    lease_duration: float = 15.0
    """What a standby waits after the last renewal that it saw."""
    renew_deadline: float = 10.0
    """What the leader waits for a renewal to succeed before it gives up."""
    retry_period: float = 2.0
    """Between two tries to acquire or renew."""


class Verdict(StrEnum):
    """What a record means to a replica."""

    FREE = "free"
    """Nobody holds the Lease, or its holder let it expire."""
    MINE = "mine"
    """The replica itself holds it."""
    HELD = "held"
    """Another one holds it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, and until when it holds."""

    verdict: Verdict
    expires_at: float = 0.0
    """When a Lease that is HELD becomes free unless it is renewed, on the local clock."""


def decide(
    record: LeaseRecord, observed_at: float, now: float, me: str, default_duration: float
) -> Decision:
    """Decide what a record means.

    Args:
        record: The record as it was last read.
        observed_at: When this term was first seen, on the local clock.
        now: The local clock.
        me: Identity of the replica.
        default_duration: Taken when the record does not tell how long a leadership lasts.
    """
    if not record.holder:
        return Decision(Verdict.FREE)
    if record.holder == me:
        return Decision(Verdict.MINE)
    expires_at = observed_at + (record.duration_seconds or default_duration)
    return Decision(Verdict.FREE if now >= expires_at else Verdict.HELD, expires_at)


class Verb(StrEnum):
    """What to do next."""

    READ = "read"
    CREATE = "create"
    REPLACE = "replace"
    WAIT = "wait"
    STOP = "stop"
    """The leadership is lost; this process must not lead again."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next thing to do."""

    verb: Verb
    seconds: float = 0.0
    """How long to wait, or after which time a request is given up."""
    record: LeaseRecord = field(default_factory=LeaseRecord)
    """What to write."""


class LeaseCore:
    """One replica in the election.

    Ask `next_step`, do it, tell the outcome by `was_read`, `was_written` or `failed`, ask again.
    Times are seconds of the local clock. `is_leader` may be asked from any thread.
    """

    def __init__(self, me: str, timing: Timing) -> None:
        """Begin as a standby that knows nothing."""
        self.me = me
        self.timing = timing
        self.lost_reason = ""
        """Why the leadership was lost; empty while it was not."""
        self._record = LeaseRecord()
        self._observed_at = _NEVER
        # Whether the record may be written upon without reading it again.
        self._fresh = False
        self._conflicts = 0
        self._wait_until = _NEVER
        self._leading = False
        # The one value that other threads read: one read is atomic, two would not be.
        self._lead_until = _NEVER
        self._renewed_at = _NEVER

    @property
    def record(self) -> LeaseRecord:
        """The record as it was last read or written."""
        return self._record

    @property
    def leading(self) -> bool:
        """Whether the Lease was acquired and not lost or released since."""
        return self._leading

    @property
    def ever_led(self) -> bool:
        """Whether this replica led at any time."""
        return self._renewed_at != _NEVER

    @property
    def expires_at(self) -> float:
        """When another replica may take over from this one at the soonest."""
        return self._renewed_at + self.timing.lease_duration

    def is_leader(self, now: float) -> bool:
        """Return whether this replica leads, by its own deadline."""
        return now < self._lead_until

    def next_step(self, now: float, wall: datetime, chance: float) -> Step:
        """Return what to do next.

        Args:
            now: The local clock.
            wall: The wall clock, for the times that people read.
            chance: A random number from 0 to 1, which keeps replicas from moving in step.
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
        if decision.verdict is Verdict.HELD:
            self._fresh = False
            self._wait_until = min(self._retry_at(now, chance), decision.expires_at)
            return Step(Verb.WAIT, max(0.0, self._wait_until - now))
        verb = Verb.REPLACE if self._record.exists else Verb.CREATE
        return Step(verb, self._request_timeout(now), self._claim(wall))

    def was_read(self, record: LeaseRecord | None, now: float) -> None:
        """Take the response to a read.

        Args:
            record: What was read; None when there is no such object.
            now: The local clock after the response came.
        """
        # A deleted Lease keeps its last holder, who may still believe in it.
        seen = replace(self._record, resource_version="") if record is None else record
        if not seen.same_term(self._record):
            self._observed_at = now
        self._record = seen
        self._fresh = True
        if self._leading and seen.holder != self.me:
            self.lose(f"the Lease is held by {seen.holder!r}")

    def was_written(self, record: LeaseRecord, started: float, now: float, chance: float) -> None:
        """Take the response to a write that succeeded.

        Args:
            record: The record as it is now.
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
        """Take the failure of a request, whether or not it was carried out.

        Args:
            now: The local clock.
            chance: As for next_step().
            conflict: The object was changed or deleted by somebody since it was read.
        """
        self._fresh = False
        self._conflicts = self._conflicts + 1 if conflict else 0
        # A leader looks at once who wrote; somebody who writes all the time must not make it spin.
        at_once = self._leading and self._conflicts == 1
        self._wait_until = now if at_once else self._retry_at(now, chance)
        if self._leading:
            # To sleep past the deadline would only delay what is then to be done.
            self._wait_until = min(self._wait_until, self._lead_until)

    def lose(self, reason: str) -> None:
        """Close the gate permanently."""
        self._lead_until = _NEVER
        self._leading = False
        self.lost_reason = reason

    def release(self, wall: datetime) -> LeaseRecord | None:
        """Close the gate and return the record that hands the Lease over, or None.

        There is nothing to hand over where another replica holds it, or nobody.
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
        """Bound a request by half of what is left, so that there is time for another try.

        A bound of one retry period would lose the Lease to an API server that takes longer than
        that to answer, though it does answer.
        """
        left = self.timing.renew_deadline
        if self._leading:
            left = max(0.0, self._lead_until - now)
        return min(left, max(self.timing.retry_period, left / 2))

    def _retry_at(self, now: float, chance: float) -> float:
        return now + self.timing.retry_period * (1 + _JITTER * chance)
