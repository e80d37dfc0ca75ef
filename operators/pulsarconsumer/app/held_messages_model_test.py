"""Random orders of an administrator and failures of a broker, against a model of both."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from operators.pulsarconsumer.app.held_messages import (
    ANSWER_SECONDS,
    ASK_SECONDS,
    CRASH_SECONDS,
    REDELIVERY_SECONDS,
    STORED_SECONDS,
    HeldMessages,
)
from operators.pulsarconsumer.app.received import Received, receive_message

_LATEST = ASK_SECONDS + max(ANSWER_SECONDS, REDELIVERY_SECONDS) + 20
"""Time after which a skipped message is not handled any more, with the steps of the model."""


class Source:
    """The consumer of the model."""

    is_retry = False
    is_durable = True

    def __init__(self, *, in_order: bool) -> None:
        self.redelivers_in_order = in_order

    @staticmethod
    def count_attempts(_message: Received) -> int:
        return 1


class World:
    """A broker with one subscription, its consumer, and an administrator.

    Attributes:
        handled: Number of calls of the handler that succeeded, by message.
        owed: Minimum number of them, because the cursor was moved back.
    """

    def __init__(self, *, in_order: bool) -> None:
        self.now = 1000.0
        self.source = Source(in_order=in_order)
        self.held = HeldMessages(1000, 1_000_000, lambda: self.now)
        self.published = 0
        self.backlog: set[int] = set()
        self.queue: list[int] = []
        self.acknowledged_at: dict[int, float] = {}
        self.skipped_at: dict[int, float] = {}
        self.in_hand: dict[int, Received] = {}
        self.handled: Counter[int] = Counter()
        self.owed: dict[int, int] = {}

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
        waiting = {number for number in self.backlog if self.is_kept(number)}
        for number in self.backlog - self.in_hand.keys() - waiting:
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
            self.held.watch_redeliveries(self.source, self.now)
            self.now += 0.25
        self.held.note_connected(self.source)
        self.queue = sorted(self.backlog)

    # The consumer.

    def succeed(self, number: int) -> None:
        """End a call of the handler."""
        if self.in_hand:
            chosen = sorted(self.in_hand)[number % len(self.in_hand)]
            message = self.in_hand.pop(chosen)
            self.handled[chosen] += 1
            self.acknowledge(chosen)
            self.held.finished(message.identity)

    def fail(self, number: int) -> None:
        if self.in_hand:
            chosen = sorted(self.in_hand)[number % len(self.in_hand)]
            if chosen in self.skipped_at and build_identity(chosen) not in self.held._seen:
                self.skipped_at[chosen] = self.now  # The time starts after the call.
            self.held.keep(self.in_hand.pop(chosen), self.now + 10.0 * (number % 20))

    def work(self, seconds: float = 0.0) -> None:
        """Receive, ask and retry, as the threads of the worker do, for a time."""
        until = self.now + seconds
        while True:
            if self.source.redelivers_in_order and self.held.must_ask(self.source):
                self.held.ask(self.source, self.now)
                self.queue = sorted(self.backlog)
            while self.queue:
                self.receive(self.queue.pop(0))
            self.give_up(self.held.note_empty(self.source, self.now))
            for raw in self.held.pop_repetitions(self.source, self.now):
                self.acknowledge(raw.number)
            self.retry()
            if self.now >= until:
                return
            self.now += 1.0

    def receive(self, number: int) -> None:
        new, done = self.held.sort_out(self.source, [build(number)], self.in_hand.values())
        for raw in done:
            self.acknowledge(raw.number)
        self.give_up(self.held.note_received(self.source, 1, 1 - len(new), self.now))
        for raw in new:
            self.start(receive_message(self.source, raw))

    def retry(self) -> None:
        for message in self.held.pop_due(self.now):
            if not self.source.redelivers_in_order and self.held.is_old(message):
                self.held.ask(self.source, self.now)
                self.held.give_back(message)
                self.send_back(message)
            elif self.held.take(message) is None and not self.held.pop_given_up(message.identity):
                self.start(message)

    def start(self, message: Received) -> None:
        number = message.raw.number
        skipped_at = self.skipped_at.get(number)
        assert skipped_at is None or self.now - skipped_at < _LATEST, "handled after a skip"
        assert number not in self.in_hand, "handled twice at a time"
        self.in_hand[number] = message

    def give_up(self, gone: list[Received]) -> None:
        for message in gone:
            self.send_back(message)

    def send_back(self, message: Received) -> None:
        if message.raw.number in self.backlog:
            self.queue.append(message.raw.number)

    def acknowledge(self, number: int) -> None:
        self.backlog.discard(number)
        self.acknowledged_at[number] = self.now

    def is_kept(self, number: int) -> bool:
        return build_identity(number) in self.held._kept

    def finish(self) -> None:
        """Let everything succeed."""
        for _ in range(100):
            self.work(30.0)
            for number in list(self.in_hand):
                self.succeed(sorted(self.in_hand).index(number))


def build(number: int) -> Any:
    return SimpleNamespace(
        number=number,
        message_id=lambda: f"({number},0,-1,-1)",
        publish_timestamp=lambda: 1,
        topic_name=lambda: "persistent://a/b/c",
        int_schema_version=lambda: -1,
        properties=dict,
        data=lambda: b"x",
    )


def build_identity(number: int) -> str:
    return f"1:{number}:0:-1:-1"


_STEPS = st.one_of(
    st.sampled_from(["publish", "work", "skip", "reset", "unload", "crash"]),
    st.tuples(st.sampled_from(["succeed", "fail"]), st.integers(0, 40)),
    st.tuples(st.just("work"), st.floats(1, 200)),
)


@settings(max_examples=200, deadline=None)
@given(st.booleans(), st.lists(_STEPS, max_size=40))
def test_no_message_is_lost_and_none_is_handled_after_it_was_skipped(
    in_order: bool, steps: list[Any]
) -> None:
    world = World(in_order=in_order)
    for step in steps:
        name, *arguments = step if isinstance(step, tuple) else (step,)
        getattr(world, name)(*arguments)
    world.finish()

    assert not world.backlog
    assert len(world.held) == 0
    assert not world.held.is_watching
    short = {number: owed for number, owed in world.owed.items() if world.handled[number] < owed}
    assert not short
