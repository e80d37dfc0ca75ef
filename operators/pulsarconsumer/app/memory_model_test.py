"""Random orders of an administrator and failures of a broker, against a model of both.

The states of each message follow the table of transitions, with random results of handlers.
`schedules_broker_test.py` replays the same schedules on a real broker. SLIPWAY_SCHEDULES sets the
number of schedules of both.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core.states import TRANSITIONS, Event, State
from operators.pulsarconsumer.app.memory import Memory, Unit
from operators.pulsarconsumer.app.received import Received
from operators.pulsarconsumer.app.redelivery import (
    ANSWER_SECONDS,
    ASK_SECONDS,
    BUSY_SECONDS,
    CRASH_SECONDS,
    REDELIVERY_SECONDS,
    STORED_SECONDS,
)

_LATEST = ASK_SECONDS + BUSY_SECONDS + max(ANSWER_SECONDS, REDELIVERY_SECONDS) + 20
"""Time after which a skipped message is not handled any more, with the steps of the model."""

_FINISHED = {State.DONE, State.GIVEN_UP}

_ACTIONS = ("publish", "skip", "skip_one", "reset", "unload", "fence", "kill", "crash", "store")
_RESULTS = ("succeed", "fail", "copy", "pause")


@dataclass(frozen=True)
class Schedule:
    """What happens to a subscription.

    Attributes:
        kind: Type of the subscription.
        groups: Number of groups whose order is kept.
        steps: Names of actions or of results of calls, with a number that chooses the message, or
            the time that passes.
    """

    kind: str
    groups: int
    steps: Sequence[tuple[str, int]]


def draw(random: Random) -> Schedule:
    """Return a random schedule."""
    kind = random.choice(("Exclusive", "Failover", "KeyShared", "Shared"))
    steps: list[tuple[str, int]] = []
    for _ in range(random.randint(1, 40)):
        chosen = random.randint(0, 9)
        if chosen < 4:
            steps.append((random.choice(_RESULTS), random.randint(0, 20)))
        elif chosen < 6:
            steps.append(("publish", 0))
        elif chosen < 8:
            steps.append(("work", random.choice((0, 1, 5, 70, 200))))
        else:
            steps.append((random.choice(_ACTIONS), 0))
    return Schedule(kind, 0 if kind == "Shared" else random.randint(1, 2), steps)


def count_schedules(default: int) -> int:
    """Return the number of schedules to try."""
    return int(os.environ.get("SLIPWAY_SCHEDULES", default))


class Source:
    """The consumer of the model."""

    is_retry = False
    is_durable = True
    is_connected = True

    def __init__(self, *, in_order: bool) -> None:
        self.redelivers_in_order = in_order


class World:
    """A broker with one subscription, its consumer, and an administrator.

    Attributes:
        states: States of the messages, according to the table.
        handled: Number of calls of the handler that succeeded, or copies, by message.
        failed: Number of calls that failed, as far as this process knows them, by message.
        owed: Minimum number of them, because the cursor was moved back.
    """

    def __init__(self, *, in_order: bool, groups: int) -> None:
        self.now = 1000.0
        self.source, self.groups = Source(in_order=in_order), groups
        self.memory = Memory(1000, 1_000_000, lambda: self.now)
        self.published = 0
        self.backlog: set[int] = set()
        self.queue: list[int] = []
        self.acknowledged_at: dict[int, float] = {}
        self.skipped_at: dict[int, float] = {}
        self.states: dict[Received, State] = {}
        self.in_hand: dict[int, Unit] = {}
        self.copied: list[Received] = []
        self.handled: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.owed: dict[int, int] = {}

    def expect(self, message: Received, event: Event) -> None:
        """Follow the table, and compare with the memory."""
        self.states[message] = TRANSITIONS[self.states[message], event]
        assert message.state is self.states[message]

    # The broker and the administrator.

    def publish(self) -> None:
        self.backlog.add(self.published)
        self.queue.append(self.published)
        self.published += 1

    def skip(self) -> None:
        for number in self.backlog:
            self.skipped_at[number] = self.now
            self.owed.pop(number, None)
        self.backlog.clear()

    def skip_one(self) -> None:
        """Skip the oldest message, as an expiry does."""
        for number in sorted(self.backlog)[:1]:
            self.skipped_at[number] = self.now
            self.owed.pop(number, None)
            self.backlog.discard(number)

    def fence(self) -> None:
        """Lose the connection for long, but no acknowledgment."""
        # A documented limit: a reset that comes together with a long loss.
        for number, at in self.acknowledged_at.items():
            if at > self.now - STORED_SECONDS:
                self.owed.pop(number, None)
        self.lose(CRASH_SECONDS + 10)

    def kill(self) -> None:
        """Replace the process."""
        for message in self.states:
            self.states[message] = State.GIVEN_UP
        self.memory = Memory(1000, 1_000_000, lambda: self.now)
        self.in_hand.clear()
        self.copied.clear()
        self.failed.clear()
        self.queue = sorted(self.backlog)

    def reset(self) -> None:
        self.backlog = set(range(self.published))
        self.skipped_at.clear()
        for number in self.backlog:
            if build_identity(number) not in self.memory._messages:
                self.owed[number] = self.handled[number] + 1
        self.lose(1.0)

    def unload(self) -> None:
        self.lose(1.0)

    def crash(self) -> None:
        """Lose the connection and acknowledgments of the last moments."""
        self.backlog |= {
            number
            for number, at in self.acknowledged_at.items()
            if at > self.now - STORED_SECONDS + 1 and number not in self.skipped_at
        }
        self.fence()

    def lose(self, seconds: float) -> None:
        self.now += 0.1
        until = self.now + seconds
        while self.now < until:
            self.memory.redeliveries.watch(self.source, self.now)
            self.now += 0.25
        self.memory.redeliveries.note_connected(self.source)
        self.queue = sorted(self.backlog)

    # The handler and the copies.

    def pick(self, number: int) -> Received | None:
        """Return a message that is in the handler."""
        if not self.in_hand:
            return None
        chosen = sorted(self.in_hand)[number % len(self.in_hand)]
        (message,) = self.in_hand[chosen]
        return message

    def succeed(self, number: int) -> None:
        """End a call of the handler."""
        message = self.pick(number)
        if message is not None:
            self.complete(message, Event.SUCCEEDED)
            self.release(message)

    def fail(self, number: int) -> None:
        message = self.pick(number)
        if message is not None:
            self.restart_skip(message)
            self.memory.fail(message, self.now + 10.0 * (number % 20), message.attempt + 1)
            self.failed[message.raw.number] += 1
            self.expect(message, Event.FAILED)
            self.release(message)

    def copy(self, number: int) -> None:
        message = self.pick(number)
        if message is not None:
            assert self.memory.replace(message)
            self.expect(message, Event.REPLACED)
            self.copied.append(message)
            self.release(message)

    def pause(self, number: int) -> None:
        """End the work of a thread without a call."""
        message = self.pick(number)
        if message is not None:
            self.restart_skip(message)
            self.memory.release(self.in_hand.pop(message.raw.number))
            self.expect(message, Event.PUT_BACK)

    def store(self) -> None:
        """Store the oldest copy."""
        self.copied = [each for each in self.copied if each.state is State.COPIED]
        if self.copied:
            self.complete(self.copied.pop(0), Event.STORED)

    def complete(self, message: Received, event: Event) -> None:
        number = message.raw.number
        self.handled[number] += 1
        self.failed.pop(number, None)
        self.acknowledge(number)
        self.memory.finish(message, event)
        self.expect(message, event)

    def release(self, message: Received) -> None:
        self.memory.release(self.in_hand.pop(message.raw.number))
        self.check()

    def restart_skip(self, message: Received) -> None:
        """Start the time after the call: it does not matter to a message in the handler."""
        if message.raw.number in self.skipped_at:
            self.skipped_at[message.raw.number] = self.now

    # The consumer.

    def work(self, seconds: float = 0.0) -> None:
        """Receive, ask and retry, as the threads of the worker do, for a time."""
        until = self.now + seconds
        redeliveries = self.memory.redeliveries
        while True:
            if self.source.redelivers_in_order and redeliveries.must_ask(self.source):
                redeliveries.ask(self.source, self.now)
                self.queue = sorted(self.backlog)
            while self.queue:
                self.receive(self.queue.pop(0))
            self.settle(*self.memory.note_empty(self.source, self.now))
            self.settle([], self.memory.pop_due(self.now), remembers=True)
            while (unit := self.memory.take(block=False)) is not None:
                self.start(unit)
            self.check()
            if self.now >= until:
                return
            self.now += 1.0

    def receive(self, number: int) -> None:
        new, done, gone = self.memory.sort_out(self.source, [build(number)])
        self.settle(done, gone)
        for identity, raw in new.items():
            group = str(raw.number % self.groups) if self.groups else ""
            attempt = self.memory.attempts(identity) + 1
            message = Received(self.source, raw, identity, attempt, group)
            self.states[message] = State.RECEIVED
            self.memory.add([[message]])

    def start(self, unit: Unit) -> None:
        (message,) = unit
        number = message.raw.number
        skipped_at = self.skipped_at.get(number)
        assert skipped_at is None or self.now - skipped_at < _LATEST, "handled after a skip"
        assert number not in self.in_hand, "handled twice at a time"
        assert message.attempt == self.failed[number] + 1
        if message.group:
            group = [each for each in self.states if each.group == message.group]
            left = [each.raw.number for each in group if self.states[each] not in _FINISHED]
            assert min(left) == number, "handled before an earlier one of its group"
        if self.states[message] is State.WAITING:
            self.states[message] = TRANSITIONS[State.WAITING, Event.DUE]
        self.expect(message, Event.TAKEN)
        self.in_hand[number] = unit

    def settle(self, done: list[Any], gone: list[Received], *, remembers: bool = False) -> None:
        for raw in done:
            self.acknowledge(raw.number)
        for message in gone:
            self.expect(message, Event.DROPPED)
            if not remembers:
                self.failed.pop(message.raw.number, None)
            if message.raw.number in self.backlog:
                self.queue.append(message.raw.number)

    def check(self) -> None:
        """Compare the states of the memory with the table."""
        for message in self.memory._messages.values():
            expected = self.states[message]
            if message.state is not expected:
                event = Event.EARLY if expected is State.RECEIVED else Event.DUE
                assert message.state is TRANSITIONS[expected, event]
                self.states[message] = message.state

    def acknowledge(self, number: int) -> None:
        self.backlog.discard(number)
        self.acknowledged_at[number] = self.now

    def end(self) -> None:
        """Let everything succeed."""
        for _ in range(100):
            self.work(30.0)
            for _ in range(len(self.in_hand)):
                self.succeed(0)
            while self.copied:
                self.store()


def build(number: int) -> Any:
    return SimpleNamespace(
        number=number,
        redelivery_count=lambda: 0,
        message_id=lambda: f"({number},0,-1,-1)",
        publish_timestamp=lambda: 1,
        topic_name=lambda: "persistent://a/b/c",
        data=lambda: b"x",
    )


def build_identity(number: int) -> str:
    return f"1:{number}:0:-1:-1"


def replay(schedule: Schedule) -> None:
    """Compare the memory with the model."""
    world = World(in_order=schedule.kind != "Shared", groups=schedule.groups)
    for name, number in schedule.steps:
        step = getattr(world, name)
        if name == "work" or name in _RESULTS:
            step(number)
        else:
            step()
    world.end()

    assert not world.backlog
    assert len(world.memory) == 0
    assert world.source not in world.memory.redeliveries._watches
    assert set(world.states.values()) <= _FINISHED
    short = {number: owed for number, owed in world.owed.items() if world.handled[number] < owed}
    assert not short


@settings(max_examples=count_schedules(300), deadline=None)
@given(st.randoms(use_true_random=False).map(draw))
def test_no_message_is_lost_and_none_is_handled_after_it_was_skipped(schedule: Schedule) -> None:
    replay(schedule)
