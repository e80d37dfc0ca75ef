"""The engine Native, look by look and under simulated load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.pulsarconsumer.api.consuming import SubscriptionType
from operators.pulsarconsumer.api.scaling import Autoscaling
from operators.pulsarconsumer.autoscaler import Cause, Limit, Memory, Scaler
from operators.pulsarconsumer.report import Report, TopicReport

NOW = 1_000_000.0


def policy(**fields: Any) -> Autoscaling:
    return Autoscaling.from_manifest({"maxReplicas": 10, **fields})


def report(entries: int = 0, **fields: Any) -> Report:
    return Report((TopicReport("t", entries=entries, messages=entries, **fields),))


def decide(
    scaler: Scaler, current: int, reported: Report, now: float = NOW
) -> tuple[int, str, str]:
    decision, _ = scaler.decide(current, reported, now)
    return decision.replicas, decision.cause, decision.limit


def test_backlog_wakes_consumers_up_from_zero() -> None:
    scaler = Scaler(policy())

    assert decide(scaler, 0, report(0)) == (0, Cause.IDLE, Limit.NONE)
    assert decide(scaler, 0, report(1)) == (1, Cause.BACKLOG, Limit.NONE)
    assert decide(scaler, 0, report(950)) == (10, Cause.BACKLOG, Limit.NONE)
    assert decide(scaler, 0, report(99_999)) == (10, Cause.BACKLOG, Limit.MAX_REPLICAS)


def test_backlog_up_to_the_activation_wakes_nobody() -> None:
    scaler = Scaler(policy(activationBacklog=50))

    assert decide(scaler, 0, report(50))[0] == 0
    assert decide(scaler, 0, report(51))[0] == 1


def test_delayed_messages_count_only_when_asked_for() -> None:
    reported = report(500, delayed=500, consumers=1)

    assert decide(Scaler(policy()), 1, reported) == (1, Cause.UNFINISHED, Limit.NONE)
    assert decide(Scaler(policy(delayedMessages="Count")), 1, reported)[0] == 5


def test_delayed_messages_wake_one_consumer_up_which_stays_until_they_are_due() -> None:
    """Without a consumer the broker never finds out that a message became due."""
    scaler = Scaler(policy(cooldownSeconds=0))

    woken = decide(scaler, 0, report(500, delayed=500))
    stays = decide(scaler, 1, report(3, delayed=3, consumers=1))

    assert woken == stays == (1, Cause.UNFINISHED, Limit.NONE)


def test_retries_keep_one_consumer_and_count_when_they_are_due() -> None:
    scaler = Scaler(policy(cooldownSeconds=0))
    idle = TopicReport("t", consumers=1)

    def with_retry(**fields: Any) -> Report:
        return Report((idle,), retry=TopicReport("r", consumers=1, **fields))

    later = decide(scaler, 1, with_retry(entries=700, messages=700, delayed=700))
    due = decide(scaler, 1, with_retry(entries=700, messages=700))
    hidden = decide(scaler, 1, Report((idle,), retry_hidden=True))
    done = decide(scaler, 1, with_retry())

    assert [later[0], due[0], hidden[0], done[0]] == [1, 7, 1, 0]


def test_consumers_that_hold_messages_are_not_ended_below_the_activation() -> None:
    scaler = Scaler(policy(activationBacklog=50, cooldownSeconds=0))

    assert decide(scaler, 1, report(40, unacknowledged=40, consumers=1))[0] == 1
    assert decide(scaler, 1, report(40, consumers=1))[0] == 0


def test_there_are_never_more_consumers_than_entries() -> None:
    batches = Report((TopicReport("t", entries=3, messages=3000, consumers=1),))

    assert decide(Scaler(policy(maxReplicas=100)), 1, batches)[0] == 3


def test_last_consumer_ends_after_the_cooldown() -> None:
    scaler = Scaler(policy(cooldownSeconds=60))
    for elapsed, expected in ((0, 1), (30, 1), (59, 1), (60, 0)):
        decision, memory = scaler.decide(1, report(0), NOW + elapsed)
        scaler = replace(scaler, memory=memory)

        assert decision.replicas == expected, elapsed


def test_message_in_the_cooldown_begins_it_anew() -> None:
    scaler = Scaler(policy(cooldownSeconds=60))
    for elapsed, entries, expected in ((0, 0, 1), (50, 3, 1), (70, 0, 1), (129, 0, 1), (130, 0, 0)):
        decision, memory = scaler.decide(1, report(entries), NOW + elapsed)
        scaler = replace(scaler, memory=memory)

        assert decision.replicas == expected, elapsed


@pytest.mark.parametrize(
    ("type", "partitions", "expected"),
    [("Exclusive", 4, 1), ("Failover", 4, 4), ("Failover", 0, 1), ("Shared", 4, 10)],
)
def test_consumers_that_would_idle_are_left_out(type: str, partitions: int, expected: int) -> None:
    reported = report(5000, partitions=partitions)

    limited = Scaler(policy(), SubscriptionType(type))
    free = Scaler(policy(partitionLimit="Never"), SubscriptionType(type))

    assert decide(limited, 0, reported)[0] == expected
    assert decide(free, 0, reported)[0] == 10


def test_number_shrinks_no_sooner_than_the_window() -> None:
    scaler = Scaler(policy(behavior={"scaleDown": {"stabilizationSeconds": 120}}))
    held = []
    for elapsed in range(0, 181, 15):
        decision, memory = scaler.decide(8, report(100), NOW + elapsed)
        scaler = replace(scaler, memory=memory)
        held.append(decision.replicas)

    # What is needed is not known to have been less before the process began.
    assert held == [8] * 8 + [1] * 5


def test_number_grows_only_when_the_need_lasts() -> None:
    scaler = Scaler(policy(behavior={"scaleUp": {"stabilizationSeconds": 30}}))
    held = []
    for elapsed in range(0, 61, 15):
        decision, memory = scaler.decide(1, report(500), NOW + elapsed)
        scaler = replace(scaler, memory=memory)
        held.append(decision.replicas)

    assert held == [1, 1, 5, 5, 5]


def test_step_bounds_one_change() -> None:
    scaler = Scaler(
        policy(behavior={"scaleUp": {"maxStep": 2}, "scaleDown": {"stabilizationSeconds": 0}})
    )

    assert decide(scaler, 1, report(1000)) == (3, Cause.BACKLOG, Limit.STEP)


def test_age_adds_consumers_while_that_makes_the_oldest_younger() -> None:
    scaler = Scaler(policy(targets={"backlogPerReplica": 1000, "maxBacklogAgeSeconds": 30}))
    old = report(50, oldest=NOW - 300)

    first, memory = scaler.decide(2, old, NOW)
    again = replace(scaler, memory=memory)
    waits, _ = again.decide(4, old, NOW + 15)
    helped, _ = again.decide(4, report(50, oldest=NOW - 200), NOW + 60)
    useless, _ = again.decide(4, old, NOW + 60)

    assert (first.replicas, first.cause) == (4, Cause.AGE)
    assert waits.replicas == 4
    assert helped.replicas == 8
    assert (useless.replicas, useless.limit) == (4, Limit.STABILIZATION)


@pytest.mark.parametrize(
    "fields",
    [
        {"unacknowledged": 50},  # Consumers hold all of it.
        {"delayed": 1, "consumers": 2},  # The oldest may not be due yet.
    ],
)
def test_age_adds_nobody_who_would_have_nothing_to_do(fields: dict[str, Any]) -> None:
    scaler = Scaler(policy(targets={"backlogPerReplica": 1000, "maxBacklogAgeSeconds": 30}))

    assert decide(scaler, 2, report(50, oldest=NOW - 300, **fields))[0] == 2


def test_drain_time_uses_the_rate_of_consumers_that_were_busy_for_two_minutes() -> None:
    scaler = Scaler(policy(targets={"backlogPerReplica": 10_000, "drainTimeSeconds": 100}))
    reported = report(4000, rate_in=20.0, rate_acknowledged=20.0, rate_out=900.0, consumers=2)
    found = []
    for elapsed in (0, 60, 120):
        decision, memory = scaler.decide(2, reported, NOW + elapsed)
        scaler = replace(scaler, memory=memory)
        found.append((decision.replicas, decision.cause))

    # Two consumers take 10 a second each; 40 a second and the 20 that come in need six.
    assert [number for number, _ in found] == [2, 2, 6]
    assert found[-1][1] is Cause.DRAIN_TIME


def test_blocked_subscription_gets_no_more_consumers() -> None:
    assert decide(Scaler(policy()), 2, report(5000, blocked=True)) == (2, Cause.BLOCKED, "")


def test_broker_that_cannot_be_asked_keeps_the_number_then_raises_it() -> None:
    scaler = Scaler(policy(fallback={"failureThreshold": 3, "replicas": 4}))

    assert scaler.decide_without_broker(2, 2).replicas == 2
    assert scaler.decide_without_broker(2, 3).replicas == 4
    assert scaler.decide_without_broker(7, 3).replicas == 7
    assert scaler.decide_without_broker(4, 4).cause is Cause.FALLBACK, "it is still in force"


def test_new_bounds_hold_at_once() -> None:
    _, memory = Scaler(policy(maxReplicas=10)).decide(10, report(5000), NOW)
    scaler = Scaler(policy(maxReplicas=3), memory=memory)

    assert scaler.decide(10, report(5000), NOW + 1)[0].replicas == 3
    assert scaler.decide_without_broker(10, 1).replicas == 3
    assert Scaler(policy(minReplicas=2)).decide_without_broker(0, 1).replicas == 2


@given(
    looks=st.lists(
        st.tuples(
            st.integers(0, 100_000),  # backlog
            st.integers(0, 100_000),  # delayed
            st.floats(0, 1e6),  # rate out
            st.integers(0, 20),  # consumers
            st.integers(0, 8),  # partitions
            st.floats(-1000, 1000),  # seconds until the look
            st.booleans(),  # the broker answers
        ),
        max_size=30,
    ),
    least=st.integers(0, 5),
    type=st.sampled_from(SubscriptionType),
    age=st.integers(1, 600) | st.none(),
)
def test_number_is_always_within_bounds_and_never_falls_blindly(
    looks: list[tuple[int, int, float, int, int, float, bool]],
    least: int,
    type: SubscriptionType,
    age: int | None,
) -> None:
    targets = {"maxBacklogAgeSeconds": age, "drainTimeSeconds": 60}
    spec = policy(minReplicas=least, targets={k: v for k, v in targets.items() if v is not None})
    memory, current, now = Memory(), least, NOW
    for backlog, delayed, rate, consumers, partitions, seconds, answers in looks:
        now += seconds
        scaler = Scaler(spec, type, memory)
        if not answers:
            decision = scaler.decide_without_broker(current, 5)
            assert decision.replicas >= current
        else:
            reported = report(
                backlog,
                delayed=min(delayed, backlog),
                rate_acknowledged=rate,
                consumers=consumers,
                partitions=partitions,
                oldest=now - backlog,
            )
            decision, memory = scaler.decide(current, reported, now)
            if backlog - delayed > 0:
                assert decision.replicas >= 1, "what waits is consumed"
        current = decision.replicas
        assert least <= current <= 10


@dataclass
class Model:
    """A topic and its consumers, in steps of a second."""

    rate: float
    """Messages a second that a consumer takes."""
    start_seconds: int = 5
    backlog: float = 0.0
    oldest: float = NOW

    def run(self, scaler: Scaler, arrivals: list[float], poll: int = 15) -> list[int]:
        """Feed arrivals, one number a second; return the number of consumers at each second."""
        wanted, ready, changed, taken = 0, 0, 0, 0.0
        history = []
        for second, arriving in enumerate(arrivals):
            if second - changed >= self.start_seconds or wanted < ready:
                ready = wanted
            taken = min(self.backlog + arriving, ready * self.rate)
            self.backlog += arriving - taken
            if second % poll == 0:
                reported = report(
                    round(self.backlog), rate_in=arriving, rate_acknowledged=taken, consumers=ready
                )
                decision, memory = scaler.decide(wanted, reported, NOW + second)
                scaler = replace(scaler, memory=memory)
                changed = second if decision.replicas != wanted else changed
                wanted = decision.replicas
            history.append(wanted)
        return history


def test_burst_is_drained_and_consumers_end() -> None:
    model = Model(rate=10)
    scaler = Scaler(policy(cooldownSeconds=60))

    history = model.run(scaler, [0.0] * 30 + [100.0] * 60 + [0.0] * 900)

    assert model.backlog == 0
    assert max(history) == 10
    assert history[29] == 0
    assert history[-1] == 0


@pytest.mark.parametrize("extra", [{}, {"drainTimeSeconds": 60}])
def test_steady_load_does_not_make_the_number_swing(extra: dict[str, int]) -> None:
    model = Model(rate=10)
    targets = {"backlogPerReplica": 200, **extra}
    scaler = Scaler(policy(targets=targets, behavior={"scaleDown": {"stabilizationSeconds": 120}}))

    history = model.run(scaler, [35.0] * 1800)

    late = history[900:]
    assert model.backlog < 1000
    assert set(late) <= {3, 4, 5}
    assert sum(a != b for a, b in pairwise(late)) <= 12


def test_trickle_never_starves() -> None:
    """A message a minute is consumed within the poll and a start, however long the cooldown."""
    model = Model(rate=10)
    scaler = Scaler(policy(cooldownSeconds=20))

    history = model.run(scaler, [1.0 if second % 60 == 0 else 0.0 for second in range(1200)])

    assert model.backlog <= 1
    assert 0 in history[300:]
