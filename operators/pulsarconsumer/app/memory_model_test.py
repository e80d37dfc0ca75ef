"""Random orders of an administrator and failures of a broker, against a model of both.

The states of each message follow the table of transitions, with random results of handlers.
"""

from __future__ import annotations

from collections import Counter
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
    CRASH_SECONDS,
    REDELIVERY_SECONDS,
    STORED_SECONDS,
)

_LATEST = ASK_SECONDS + max(ANSWER_SECONDS, REDELIVERY_SECONDS) + 20
"""Time after which a skipped message is not handled any more, with the steps of the model."""

_FINISHED = {State.DONE, State.GIVEN_UP}


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
        # A documented limit: a reset that comes together with a crash.
        for number, at in self.acknowledged_at.items():
            if at > self.now - STORED_SECONDS:
                self.owed.pop(number, None)
        self.lose(CRASH_SECONDS + 10)

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
            self.settle([], self.memory.pop_due(self.now))
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
            message = Received(self.source, raw, identity, group=group)
            self.states[message] = State.RECEIVED
            self.memory.add([[message]])

    def start(self, unit: Unit) -> None:
        (message,) = unit
        number = message.raw.number
        skipped_at = self.skipped_at.get(number)
        assert skipped_at is None or self.now - skipped_at < _LATEST, "handled after a skip"
        assert number not in self.in_hand, "handled twice at a time"
        if message.group:
            # In the order of their receipt.
            group = [each for each in self.states if each.group == message.group]
            first = next(each for each in group if self.states[each] not in _FINISHED)
            assert first is message, "handled before an earlier one of its group"
        if self.states[message] is State.WAITING:
            self.states[message] = TRANSITIONS[State.WAITING, Event.DUE]
        self.expect(message, Event.TAKEN)
        self.in_hand[number] = unit

    def settle(self, done: list[Any], gone: list[Received]) -> None:
        for raw in done:
            self.acknowledge(raw.number)
        for message in gone:
            self.expect(message, Event.DROPPED)
            if message.raw.number in self.backlog:
                self.queue.append(message.raw.number)

    def check(self) -> None:
        """Compare the states of the memory with the table."""
        for message in self.memory._messages.values():
            expected = self.states[message]
            if message.state is not expected:
                assert message.state is TRANSITIONS[expected, Event.DUE]
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
        message_id=lambda: f"({number},0,-1,-1)",
        publish_timestamp=lambda: 1,
        data=lambda: b"x",
    )


def build_identity(number: int) -> str:
    return f"1:{number}:0:-1:-1"


_STEPS = st.one_of(
    st.sampled_from(["publish", "work", "skip", "reset", "unload", "crash", "store"]),
    st.tuples(st.sampled_from(["succeed", "fail", "copy", "pause"]), st.integers(0, 40)),
    st.tuples(st.just("work"), st.floats(1, 200)),
)


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.integers(0, 2), st.lists(_STEPS, max_size=40))
def test_no_message_is_lost_and_none_is_handled_after_it_was_skipped(
    in_order: bool, groups: int, steps: list[Any]
) -> None:
    world = World(in_order=in_order, groups=groups if in_order else 0)
    for step in steps:
        name, *arguments = step if isinstance(step, tuple) else (step,)
        getattr(world, name)(*arguments)
    world.end()

    assert not world.backlog
    assert len(world.memory) == 0
    assert not world.memory.redeliveries.is_watched(world.source)
    assert set(world.states.values()) <= _FINISHED
    short = {number: owed for number, owed in world.owed.items() if world.handled[number] < owed}
    assert not short
