"""The engine Native and the estimate of the backlog against a model of a broker.

The model has what real topics have: acknowledged entries behind one that waits, batches, delayed
messages, retries, prefetch, rates that are a minute old, and a count of delayed messages that does
not change while no consumer is connected (seen at a broker of Pulsar 4.0).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from operators.pulsarconsumer.api.consuming import SubscriptionType
from operators.pulsarconsumer.api.scaling import Autoscaling
from operators.pulsarconsumer.autoscaler import Decision, Scaler
from operators.pulsarconsumer.broker.statistics import parse_statistics
from operators.pulsarconsumer.report import Report, TopicReport

NOW = 1_000_000
POLL = 15
START_SECONDS = 5
BYTES = 100
_SECONDS = 2400
"""Length of a run, in which all work must come to an end."""


@dataclass(eq=False)
class Entry:
    """An entry of a topic: a message, or a batch."""

    published: int
    messages: int = 1
    due: int = 0
    failures: int = 0
    """Attempts that fail before one succeeds."""
    left: float = 0.0
    owner: int | None = None


@dataclass
class ModelTopic:
    """A topic, or the retry topic, with the statistics that a broker publishes of it."""

    name: str
    entries: list[Entry] = field(default_factory=list)
    acknowledged_after_head: int = 0
    messages_in: int = 0
    frozen_delayed: int = 0
    acknowledged: int = 0
    rate_acknowledged: float = 0.0
    rate_in: float = 0.0
    _minute: tuple[int, int] = (0, 0)

    def publish(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.messages_in += entry.messages

    def acknowledge(self, entry: Entry) -> None:
        self.acknowledged += entry.messages
        if self.entries[0] is entry:
            self.acknowledged_after_head = 0
        else:
            self.acknowledged_after_head += entry.messages
        self.entries.remove(entry)

    def delayed(self, now: int) -> int:
        return sum(entry.due > now for entry in self.entries)

    def publish_rates(self) -> None:
        acknowledged, sent = self._minute
        self.rate_acknowledged = (self.acknowledged - acknowledged) / 60
        self.rate_in = (self.messages_in - sent) / 60
        self._minute = (self.acknowledged, self.messages_in)

    def report(self, consumers: int, now: int) -> TopicReport:
        """Return what the operator reads from the statistics."""
        if consumers:
            self.frozen_delayed = self.delayed(now)
        held = [entry for entry in self.entries if entry.owner is not None]
        waiting = sum(entry.messages for entry in self.entries)
        mean = waiting / len(self.entries) if self.entries else 1
        subscription = {
            "msgBacklog": len(self.entries),
            # What lies behind the first entry that waits, acknowledged or not.
            "backlogSize": BYTES * (waiting + self.acknowledged_after_head),
            "nonContiguousDeletedMessagesRanges": int(self.acknowledged_after_head > 0),
            "msgDelayed": min(self.frozen_delayed, len(self.entries)),
            "unackedMessages": sum(entry.messages for entry in held),
            "messageAckRate": self.rate_acknowledged,
            "earliestMsgPublishTimeInBacklog": (
                1000 * self.entries[0].published if self.entries else 0
            ),
            "consumers": [{"avgMessagesPerEntry": round(mean), "msgOutCounter": 1}] * consumers,
        }
        raw: dict[str, Any] = {
            "msgRateIn": self.rate_in,
            "msgInCounter": self.messages_in,
            "bytesInCounter": BYTES * self.messages_in,
            "subscriptions": {"sub": subscription},
        }
        return parse_statistics(self.name, raw, "sub", 0)


@dataclass
class ModelBroker:
    """A topic and its retry topic with consumers, in steps of a second."""

    rate: float
    prefetch: int = 5
    delay: int = 30
    """Seconds before the second attempt; each further one takes twice as long."""
    ready: int = 0
    wanted: int = 0
    changed: int = 0
    now: int = NOW

    def __post_init__(self) -> None:
        self.topic, self.retry = ModelTopic("t"), ModelTopic("r")

    @property
    def topics(self) -> tuple[ModelTopic, ModelTopic]:
        return self.topic, self.retry

    @property
    def due(self) -> int:
        return sum(entry.due <= self.now for topic in self.topics for entry in topic.entries)

    @property
    def waiting(self) -> int:
        return sum(len(topic.entries) for topic in self.topics)

    def step(self) -> None:
        """Let a second pass."""
        self.now += 1
        if self.now % 60 == 0:
            for topic in self.topics:
                topic.publish_rates()
        if self.wanted < self.ready or self.now - self.changed >= START_SECONDS:
            self.ready = self.wanted
            for entry in (entry for topic in self.topics for entry in topic.entries):
                if entry.owner is not None and entry.owner >= self.ready:
                    entry.owner = None
        for number in range(self.ready):
            self._work(number)

    def _work(self, number: int) -> None:
        entries = [entry for topic in self.topics for entry in topic.entries]
        mine = [entry for entry in entries if entry.owner == number]
        free = (entry for entry in entries if entry.owner is None and entry.due <= self.now)
        while len(mine) < self.prefetch and (entry := next(free, None)):
            entry.owner, entry.left = number, float(entry.messages)
            mine.append(entry)
        budget = self.rate
        for entry in mine:
            done = min(budget, entry.left)
            entry.left -= done
            budget -= done
            if entry.left <= 0:
                self._end(entry)
            if budget <= 0:
                break

    def _end(self, entry: Entry) -> None:
        topic = next(topic for topic in self.topics if entry in topic.entries)
        if entry.failures:
            again = Entry(self.now, 1, self.now + self.delay, entry.failures - 1)
            self.delay = min(300, 2 * self.delay)
            self.retry.publish(again)
        topic.acknowledge(entry)

    def report(self) -> Report:
        topic, retry = (topic.report(self.ready, self.now) for topic in self.topics)
        return Report((topic,), retry=retry)

    def scale(self, scaler: Scaler) -> tuple[Scaler, Decision]:
        decision, memory = scaler.decide(self.wanted, self.report(), float(self.now))
        if decision.replicas != self.wanted:
            self.wanted, self.changed = decision.replicas, self.now
        return replace(scaler, memory=memory), decision


def run(model: ModelBroker, scaler: Scaler, seconds: int) -> Iterator[tuple[int, Decision]]:
    """Run for a time; yield the number before each decision, and the decision."""
    for second in range(seconds):
        model.step()
        if second % POLL == 0:
            before = model.wanted
            scaler, decision = model.scale(scaler)
            yield before, decision


def policy(**fields: Any) -> Autoscaling:
    quick = {"scaleDown": {"stabilizationSeconds": 60}}
    base = {"maxReplicas": 10, "cooldownSeconds": 30, "behavior": quick}
    return Autoscaling.from_manifest({**base, **fields})


arrivals = st.lists(
    st.tuples(
        st.integers(0, 300),  # second
        st.integers(1, 40),  # entries
        st.sampled_from([1, 1, 10, 200]),  # messages in each
        st.sampled_from([0, 0, 45, 200]),  # delay
        st.sampled_from([0, 0, 0, 1, 3]),  # failures of the first of them
    ),
    max_size=6,
)


@settings(max_examples=30, deadline=None)
@given(
    events=arrivals,
    rate=st.sampled_from([5.0, 50.0, 500.0]),
    prefetch=st.sampled_from([1, 5, 100]),
    age=st.sampled_from([None, 20]),
    drain=st.sampled_from([None, 120]),
)
def test_nothing_is_stranded_and_nobody_is_started_without_work(
    events: list[tuple[int, int, int, int, int]],
    rate: float,
    prefetch: int,
    age: int | None,
    drain: int | None,
) -> None:
    sent = sum(count * messages for _, count, messages, *_ in events)
    # One consumer may have prefetched everything, so that others cannot help it.
    assume(sent / rate <= _SECONDS / 2)
    model = ModelBroker(rate, prefetch)
    targets = {"backlogPerReplica": 50, "maxBacklogAgeSeconds": age, "drainTimeSeconds": drain}
    spec = policy(targets={name: value for name, value in targets.items() if value})
    scaler = Scaler(spec, SubscriptionType.SHARED)
    ended: int | None = None
    last = max((second for second, *_ in events), default=0)
    for second in range(_SECONDS):
        for at, count, messages, delay, failures in events:
            if at == second:
                for number in range(count):
                    due = model.now + delay if delay else 0
                    size = 1 if delay or not number else messages
                    failing = 0 if number else failures
                    model.topic.publish(Entry(model.now, size, due, failing))
        model.step()
        if second % POLL:
            continue
        before, due, incoming = model.wanted, model.due, model.topic.rate_in
        # Without consumers the broker does not know which entries are delayed.
        known = due if model.ready else model.waiting
        scaler, decision = model.scale(scaler)
        if due:
            assert decision.replicas >= 1, "messages that are due are consumed"
        if decision.replicas > max(1, before):
            assert decision.replicas <= known + math.ceil(incoming / rate), "each has work to do"
        if second > last and not decision.replicas and ended is None:
            ended = second
            assert not model.waiting, "no message waits for consumers that have ended"
        if ended is not None:
            assert not decision.replicas, "what has ended stays so"
    assert ended is not None
    assert not model.waiting


@pytest.mark.parametrize("batch", [1, 100])
def test_one_message_that_waits_is_one_message_whatever_was_acknowledged_behind_it(
    batch: int,
) -> None:
    model = ModelBroker(rate=1000)
    model.topic.publish(Entry(NOW, due=NOW + 2000))
    for _ in range(500):
        model.topic.publish(Entry(NOW, batch))

    decisions = [decision.replicas for _, decision in run(model, Scaler(policy()), 1500)]

    assert model.topic.acknowledged_after_head == 500 * batch
    assert set(decisions[-60:]) == {1}


def test_age_adds_nobody_for_a_message_that_keeps_failing() -> None:
    model = ModelBroker(rate=10)
    model.topic.publish(Entry(NOW, messages=10**6))  # Its handling does not end.
    scaler = Scaler(policy(targets={"maxBacklogAgeSeconds": 30}))

    decisions = [decision.replicas for _, decision in run(model, scaler, 900)]

    assert set(decisions) == {1}


def test_age_stops_adding_when_the_oldest_message_stays_the_oldest() -> None:
    model = ModelBroker(rate=1, prefetch=1)
    model.topic.publish(Entry(NOW, messages=10**6))
    scaler = Scaler(
        policy(maxReplicas=100, targets={"backlogPerReplica": 10**9, "maxBacklogAgeSeconds": 30})
    )
    decisions = []
    for second in range(1800):
        model.topic.publish(Entry(model.now))
        model.step()
        if second % POLL == 0:
            scaler, decision = model.scale(scaler)
            decisions.append(decision.replicas)

    assert max(decisions) <= 4, "once, and once more while the first have no time to show"
    assert decisions[-1] <= 2


@pytest.mark.parametrize("messages", [1, 20])
def test_steady_load_converges(messages: int) -> None:
    """Four consumers are needed; the rates are a minute old, and the number does not swing."""
    model = ModelBroker(rate=10 * messages, prefetch=20)
    targets = {"backlogPerReplica": 200 * messages, "drainTimeSeconds": 60}
    spec = policy(targets=targets, behavior={"scaleDown": {"stabilizationSeconds": 300}})
    scaler, decisions = Scaler(spec), []
    for second in range(3600):
        for _ in range(35):
            model.topic.publish(Entry(model.now, messages))
        model.step()
        if second % POLL == 0:
            scaler, decision = model.scale(scaler)
            decisions.append(decision.replicas)

    late = decisions[len(decisions) // 2 :]
    assert set(late) <= {4, 5, 6}
    assert sum(a != b for a, b in pairwise(late)) <= 6
    assert model.due < 1000
