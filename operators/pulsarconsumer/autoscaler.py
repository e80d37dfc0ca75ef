"""The engine Native: how many consumers a PulsarConsumer should have; pure, with time passed in.

The number that is needed is the highest of three: for the backlog, for the time in which it should
be processed, and for the age of its oldest message. It never exceeds the number of entries that
wait: more consumers would have nothing to do. Bounds, the type of the subscription and windows then
hold it back. What is remembered between two polls is a value as well and may be lost: a process
that restarts begins with the current number, and scales down no sooner than a whole window later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from operators.pulsarconsumer.api.consuming import SubscriptionType
from operators.pulsarconsumer.api.scaling import Autoscaling, PartitionLimit
from operators.pulsarconsumer.demand import Demand, measure_demand
from operators.pulsarconsumer.report import Report

_AGE_PATIENCE: Final = 60.0
"""Seconds that consumers added for the age of the backlog have to show an effect."""
_AGE_GROWTH: Final = 2.0
"""By how much the number grows at most for the age of the backlog, at a time."""
_RATE_WINDOW: Final = 120.0
"""Seconds that consumers must have been busy before their rate is believed.

Brokers publish the mean of the last minute, and once a minute: a rate may be two minutes old.
"""
_FORGETTING: Final = 0.98
"""What is left of the known rate after a poll at which busy consumers were slower."""
_REMEMBERED: Final = 4096
"""Most needs that are remembered; beyond, the oldest are dropped."""


class Cause(StrEnum):
    """Cause names what the number was chosen for."""

    BACKLOG = "Backlog"
    DRAIN_TIME = "DrainTime"
    INCOMING = "Incoming"
    AGE = "Age"
    IDLE = "Idle"
    UNFINISHED = "Unfinished"
    COOLDOWN = "Cooldown"
    KEPT = "Kept"
    FALLBACK = "Fallback"
    BLOCKED = "Blocked"


class Limit(StrEnum):
    """Limit names what held the number back."""

    NONE = ""
    MIN_REPLICAS = "MinReplicas"
    MAX_REPLICAS = "MaxReplicas"
    PARTITIONS = "Partitions"
    STABILIZATION = "Stabilization"
    STEP = "Step"


@dataclass(frozen=True, slots=True)
class RequiredReplicas:
    """A number of consumers that was needed at a time.

    Attributes:
        time: When, in seconds.
        replicas: How many.
    """

    time: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Consumers that had enough to do, at a poll.

    Attributes:
        time: When, in seconds.
        consumers: How many were connected.
    """

    time: float
    consumers: int


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """Consumers that were added for the age of the backlog.

    Attributes:
        time: When, in seconds.
        oldest: When the message that was the oldest then was published.
    """

    time: float
    oldest: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered from one poll to the next.

    Attributes:
        needs: What was needed lately, the oldest first.
        idle_since: When the backlog became empty; None while there is one.
        busy: Busy consumers of all polls since they were last not busy, the oldest first.
        rate: Messages a second that one busy consumer acknowledges.
        raised: When consumers were last added for the age of the backlog.
    """

    needs: tuple[RequiredReplicas, ...] = ()
    idle_since: float | None = None
    busy: tuple[Busy, ...] = ()
    rate: float | None = None
    raised: ScaleUp | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The desired number of consumers.

    Attributes:
        replicas: The number.
        cause: What it was chosen for.
        limit: What held it back.
    """

    replicas: int
    cause: Cause
    limit: Limit = Limit.NONE


@dataclass(frozen=True, slots=True)
class Scaler:
    """The autoscaler of one PulsarConsumer.

    Attributes:
        policy: What the spec asks for.
        type: Type of the subscription.
        memory: What is remembered.
    """

    policy: Autoscaling
    type: SubscriptionType = SubscriptionType.SHARED
    memory: Memory = field(default_factory=Memory)

    def decide(self, current: int, report: Report, now: float) -> tuple[Decision, Memory]:
        """Decide by what the broker reported.

        Args:
            current: Current desired number of consumers.
            report: What the broker reported.
            now: Time in seconds; may jump.
        """
        demand = measure_demand(report, self.policy.delayed_messages)
        memory = self._remember(current, report, demand, now)
        need, cause = self._find_need(current, demand, memory, now)
        wanted, limit = self._bound(need, report)
        if not memory.needs:
            # A process that restarts does not know what was needed before: the current number.
            memory = replace(
                memory, needs=(RequiredReplicas(now, self._bound(current, report)[0]),)
            )
        windows = self.policy.behavior
        horizon = max(
            windows.scale_up.stabilization_seconds, windows.scale_down.stabilization_seconds
        )
        needs = _trim((*memory.needs, RequiredReplicas(now, wanted)), now, horizon)
        memory = replace(memory, needs=needs)
        if cause is Cause.IDLE and wanted == self.policy.min_replicas == 0:
            # The cooldown was the window.
            return Decision(0, cause), replace(memory, raised=None)
        steady = self._stabilize(current, wanted, needs, now)
        if steady != wanted:
            limit = Limit.STABILIZATION
        stepped = self._step(current, steady)
        if stepped != steady:
            limit = Limit.STEP
        if report.blocked and stepped > current:
            return self._keep(current, Cause.BLOCKED), memory
        if cause is Cause.AGE and stepped > current and demand.oldest is not None:
            memory = replace(memory, raised=ScaleUp(now, demand.oldest))
        # Bounds of the spec, which may be new, hold immediately.
        inside = self._keep(stepped, cause)
        return (inside if inside.limit else Decision(stepped, cause, limit)), memory

    def decide_without_broker(self, current: int, failures: int) -> Decision:
        """Decide while the broker cannot be queried: keep the number, or raise it; never lower it.

        Args:
            current: Current desired number of consumers.
            failures: How many looks failed in a row.
        """
        fallback = self.policy.fallback
        if failures >= fallback.failure_threshold and current <= fallback.replicas:
            return self._keep(fallback.replicas, Cause.FALLBACK)
        return self._keep(current, Cause.KEPT)

    def _keep(self, replicas: int, cause: Cause) -> Decision:
        """Keep a number, within the bounds of the spec, which may be new."""
        policy = self.policy
        bounded = min(max(replicas, policy.min_replicas), policy.max_replicas)
        if bounded > replicas:
            return Decision(bounded, cause, Limit.MIN_REPLICAS)
        return Decision(bounded, cause, Limit.MAX_REPLICAS if bounded < replicas else Limit.NONE)

    def _remember(self, current: int, report: Report, demand: Demand, now: float) -> Memory:
        """Note since when nothing waits, and how fast busy consumers are."""
        memory = self.memory
        since = memory.idle_since
        if since is None or since > now:
            since = now
        busy, rate = self._measure_rate(current, report, demand, now)
        idle = self._is_idle(current, demand)
        return replace(memory, idle_since=since if idle else None, busy=busy, rate=rate)

    def _measure_rate(
        self, current: int, report: Report, demand: Demand, now: float
    ) -> tuple[tuple[Busy, ...], float | None]:
        """Return what is known of busy consumers, and how fast one of them is."""
        busy, rate = self.memory.busy, self.memory.rate
        connected = min(current, report.consumers) if report.counted else current
        if not connected or not demand.unclaimed or (busy and busy[-1].time > now):
            # Consumers that wait for messages do not show how fast they are.
            return (), rate
        busy = (*busy, Busy(now, connected))[-_REMEMBERED:]
        if now - busy[0].time < _RATE_WINDOW:
            return busy, rate
        busy = tuple(each for each in busy if now - each.time <= _RATE_WINDOW)
        mean = sum(each.consumers for each in busy) / len(busy)
        found = sum(topic.rate_acknowledged for topic in report.consumed) / mean
        return busy, max(found, (rate or 0.0) * _FORGETTING) or None

    def _is_idle(self, current: int, demand: Demand) -> bool:
        """Return whether no consumer is needed."""
        activation = self.policy.activation_backlog
        if not current:
            # Nothing says which of the delayed messages became due, so all entries count.
            return demand.waiting <= activation
        # Messages that are expected within the cooldown are no reason to end the last consumer.
        expected = demand.incoming * self.policy.cooldown_seconds >= 1
        return demand.messages <= activation and not demand.unfinished and not expected

    def _find_need(
        self, current: int, demand: Demand, memory: Memory, now: float
    ) -> tuple[int, Cause]:
        targets = self.policy.targets
        backlog = min(math.ceil(demand.messages / targets.backlog_per_replica), demand.entries)
        if memory.idle_since is not None:
            if current == 0 or now - memory.idle_since >= self.policy.cooldown_seconds:
                return 0, Cause.IDLE
            return max(1, backlog), Cause.COOLDOWN
        needs = [(backlog, Cause.BACKLOG)]
        if memory.rate:
            incoming = demand.incoming / memory.rate
            if targets.drain_time_seconds is not None:
                waiting = demand.messages / targets.drain_time_seconds / memory.rate
                need = math.ceil(min(waiting, demand.entries) + incoming)
                needs.append((need, Cause.DRAIN_TIME))
            # An empty backlog is no reason to keep fewer than the incoming messages need.
            needs.append((min(current, math.ceil(incoming)), Cause.INCOMING))
        needs.append((self._find_need_for_age(current, demand, memory, now), Cause.AGE))
        need, cause = max(needs, key=lambda pair: pair[0])
        return (need, cause) if need else (1, Cause.UNFINISHED)

    def _find_need_for_age(self, current: int, demand: Demand, memory: Memory, now: float) -> int:
        limit = self.policy.targets.max_backlog_age_seconds
        if limit is None or demand.oldest is None or now - demand.oldest <= limit:
            return 0
        # The backlog is late already, so no consumer that has something to do is taken away.
        kept = min(current, demand.entries)
        raised = memory.raised
        if raised is not None and 0 <= now - raised.time < _AGE_PATIENCE:
            return kept
        if raised is not None and demand.oldest <= raised.oldest:
            # More consumers did not help: the oldest message is one that keeps failing, or its
            # partition is blocked.
            return 0
        growth = min(_AGE_GROWTH, (now - demand.oldest) / limit)
        return min(math.ceil(current * growth), kept + demand.unclaimed, demand.entries)

    def _bound(self, need: int, report: Report) -> tuple[int, Limit]:
        policy = self.policy
        lanes = self._find_lanes(report)
        if lanes is not None and lanes < min(need, policy.max_replicas):
            return max(lanes, policy.min_replicas), Limit.PARTITIONS
        if need > policy.max_replicas:
            return policy.max_replicas, Limit.MAX_REPLICAS
        if need < policy.min_replicas:
            return policy.min_replicas, Limit.MIN_REPLICAS
        return need, Limit.NONE

    def _find_lanes(self, report: Report) -> int | None:
        """Return how many consumers can be busy at a time; None if there is no limit."""
        if self.policy.partition_limit is PartitionLimit.NEVER:
            return None
        match self.type:
            case SubscriptionType.EXCLUSIVE:
                return 1
            case SubscriptionType.FAILOVER:
                return report.lanes
            case _:
                return None

    def _stabilize(
        self, current: int, wanted: int, needs: Iterable[RequiredReplicas], now: float
    ) -> int:
        """Take the least change that the windows saw a need for."""
        behavior, listed = self.policy.behavior, list(needs)

        def within(seconds: int) -> list[int]:
            return [wanted, *(need.replicas for need in listed if now - need.time < seconds)]

        up = min(within(behavior.scale_up.stabilization_seconds))
        down = max(within(behavior.scale_down.stabilization_seconds))
        if wanted > current:
            return max(current, min(up, wanted))
        return min(current, max(down, wanted))

    def _step(self, current: int, wanted: int) -> int:
        behavior = self.policy.behavior
        if wanted > current and behavior.scale_up.max_step is not None:
            return min(wanted, current + behavior.scale_up.max_step)
        if wanted < current and behavior.scale_down.max_step is not None:
            return max(wanted, current - behavior.scale_down.max_step)
        return wanted


def _trim(
    needs: tuple[RequiredReplicas, ...], now: float, horizon: float
) -> tuple[RequiredReplicas, ...]:
    """Drop needs outside of all windows, and needs from a clock that was ahead."""
    kept = [need for need in needs if need.time <= now and now - need.time <= horizon]
    return tuple(kept[-_REMEMBERED:])
