"""The rules of the election under every schedule that chance finds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.election.core import LeaseCore, Step, Timing, Verb
from libs.common.election.lease import LeaseRecord

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HELD = LeaseRecord("other", 15, 3, "t0", "t1", "7")

# A world of several replicas and one server, moved by chance.


@dataclass
class Sent:
    """A request on its way; the server may carry it out at any later time, or never."""

    step: Step
    started: float
    done: bool = False
    answer: LeaseRecord | None = None
    conflict: bool = False


@dataclass
class Replica:
    """A replica with a clock that is off, runs a little too fast or slow, and may stand still."""

    core: LeaseCore
    offset: float
    rate: float
    wall: datetime
    now: float = 0.0
    sent: Sent | None = None
    wakes_at: float = float("-inf")
    late: list[Sent] = field(default_factory=list)

    def move(self, seconds: float) -> None:
        self.now += seconds * self.rate

    def clock(self) -> float:
        return self.now + self.offset


class LeaseModel:
    """One Lease on one server, and those who want it."""

    def __init__(self, replicas: list[Replica]) -> None:
        self.replicas = replicas
        self.lease: LeaseRecord | None = None
        self.version = 0
        self.tokens: list[tuple[int, str]] = []

    def serve(self, sent: Sent) -> None:
        """Carry a request out as the API server does."""
        sent.done = True
        step = sent.step
        if step.verb is Verb.READ:
            sent.answer = self.lease
            return
        expected = self.lease.resource_version if self.lease else ""
        if step.record.resource_version != expected:
            sent.conflict = True
            return
        self.version += 1
        self.lease = replace(step.record, resource_version=str(self.version))
        sent.answer = self.lease

    def begin(self, replica: Replica) -> None:
        if replica.sent is not None or replica.clock() < replica.wakes_at:
            return
        step = replica.core.next_step(replica.clock(), replica.wall, 0.5)
        if step.verb is Verb.WAIT:
            replica.wakes_at = replica.clock() + step.seconds
        elif step.verb is not Verb.STOP:
            replica.sent = Sent(step, replica.clock())

    def finish(self, replica: Replica) -> None:
        sent = replica.sent
        if sent is None or not sent.done:
            return
        replica.sent = None
        now = replica.clock()
        if sent.conflict:
            replica.core.failed(now, 0.5, conflict=True)
        elif sent.step.verb is Verb.READ:
            replica.core.was_read(sent.answer, now)
        elif sent.answer is not None:
            led = replica.core.leading
            replica.core.was_written(sent.answer, sent.started, now, 0.5)
            if not led and replica.core.is_leader(now):
                self.tokens.append((sent.answer.transitions, replica.core.me))

    def give_up(self, replica: Replica) -> None:
        """Lose the response; the request itself may still arrive."""
        if replica.sent is not None:
            replica.late.append(replica.sent)
            replica.sent = None
            replica.core.failed(replica.clock(), 0.5)

    def restart(self, replica: Replica) -> None:
        """Start again under another identity, while old requests may still arrive."""
        self.give_up(replica)
        replica.core = LeaseCore(f"{replica.core.me}+", Timing())
        replica.wakes_at = float("-inf")

    def leaders(self) -> list[str]:
        return [r.core.me for r in self.replicas if r.core.is_leader(r.clock())]


# Mostly all goes well: schedules in which nothing ever succeeds find no error.
_ACTIONS = st.sampled_from(
    ["turn"] * 12
    + ["begin", "serve", "finish"] * 2
    + ["give_up", "late", "jump", "edit", "release", "restart"]
)
_EVENTS = st.lists(
    st.tuples(_ACTIONS, st.integers(0, 2), st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 2.0, 4.0])),
    min_size=60,
    max_size=160,
)


def build_replica(name: str, offset: float, rate: float) -> Replica:
    return Replica(LeaseCore(name, Timing()), offset, rate, NOON)


def act(model: LeaseModel, action: str, replica: Replica, seconds: float) -> None:
    """Do one thing to a replica; what cannot be done now is nothing."""
    sent = replica.sent
    if action in ("begin", "turn"):
        if replica.core.lost_reason:
            model.restart(replica)
        model.begin(replica)
        sent = replica.sent
    if action in ("serve", "turn") and sent and not sent.done:
        model.serve(sent)
    if action in ("finish", "turn"):
        model.finish(replica)
    if action in _DISTURBANCES:
        _DISTURBANCES[action](model, replica, seconds)


def arrive_late(model: LeaseModel, replica: Replica, _: float) -> None:
    if replica.late and not (sent := replica.late.pop()).done:
        model.serve(sent)


def edit_labels(model: LeaseModel, _: Replica, __: float) -> None:
    if model.lease:
        model.version += 1
        model.lease = replace(model.lease, resource_version=str(model.version))


def release(model: LeaseModel, replica: Replica, _: float) -> None:
    if record := replica.core.release(replica.wall):
        model.serve(Sent(Step(Verb.REPLACE, record=record), 0))
    replica.core.lose("stopped")


def jump(_: LeaseModel, replica: Replica, seconds: float) -> None:
    replica.wall += timedelta(days=seconds - 1)


_DISTURBANCES: dict[str, Callable[[LeaseModel, Replica, float], None]] = {
    "give_up": lambda model, replica, _: model.give_up(replica),
    "restart": lambda model, replica, _: model.restart(replica),
    "late": arrive_late,
    "edit": edit_labels,
    "release": release,
    "jump": jump,
}


@settings(max_examples=150, deadline=None)
@given(
    events=_EVENTS,
    offsets=st.tuples(*[st.sampled_from([0.0, 1e6, -1e6])] * 3),
    rates=st.tuples(*[st.sampled_from([0.9, 1.0, 1.1])] * 3),
)
def test_two_replicas_never_lead_at_once(
    events: list[tuple[str, int, float]],
    offsets: tuple[float, float, float],
    rates: tuple[float, float, float],
) -> None:
    replicas = [
        build_replica(name, offset, rate)
        for name, offset, rate in zip("abc", offsets, rates, strict=True)
    ]
    model = LeaseModel(replicas)
    for action, index, seconds in events:
        act(model, action, replicas[index], seconds)
        assert len(model.leaders()) <= 1
        for replica in replicas:
            replica.move(seconds)
        assert len(model.leaders()) <= 1

    numbers = [token for token, _ in model.tokens]
    assert numbers == sorted(set(numbers)), "each leader has a greater fencing token"


def test_someone_leads_in_the_end_when_all_goes_well() -> None:
    replicas = [build_replica(name, 0.0, 1.0) for name in "abc"]
    model = LeaseModel(replicas)
    for _ in range(40):
        for replica in replicas:
            act(model, "turn", replica, 0)
            replica.move(1.0)

    assert len(model.leaders()) == 1
    assert len(model.tokens) == 1
