"""The engine Native: how many consumers there are to be; pure, with time passed in.

The number that is needed is the highest of three: for the backlog, for the time in which it is to
be gone, and for the age of its oldest message. Bounds, the type of the subscription and windows
then hold it back. What is remembered between two looks is a value, too, and may be lost: a process
that starts anew begins with the number that there is, and scales down no sooner than a whole window
later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from operators.pulsarconsumer.api.consuming import SubscriptionType
from operators.pulsarconsumer.api.scaling import (
    Autoscaling,
    DelayedMessages,
    PartitionLimit,
)
from operators.pulsarconsumer.report import Report

_AGE_PATIENCE: Final = 60.0
"""Seconds that consumers added for the age of the backlog have to show an effect."""
_AGE_GROWTH: Final = 2.0
"""By how much the number grows at most for the age of the backlog, at a time."""
_FORGETTING: Final = 0.98
"""What is left after a look of the rate that a consumer was once seen to have."""
_REMEMBERED: Final = 4096
"""Most needs that are remembered; beyond, the oldest are dropped."""


class Cause(StrEnum):
    """Cause names what the number was chosen for."""

    BACKLOG = "Backlog"
    DRAIN_TIME = "DrainTime"
    INCOMING = "Incoming"
    AGE = "Age"
    IDLE = "Idle"
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
class Need:
    """A number of consumers that was needed at a time.

    Attributes:
        time: When, in seconds.
        replicas: How many.
    """

    time: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered from one look to the next.

    Attributes:
        needs: What was needed lately, the oldest first.
        idle_since: When the backlog was last seen to begin to be none; None while there is one.
        rate: Messages a second that one consumer was seen to take while there was a backlog.
        raised: When consumers were last added for the age of the backlog.
    """

    needs: tuple[Need, ...] = ()
    idle_since: float | None = None
    rate: float | None = None
    raised: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """How many consumers there are to be.

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
    """Decide for one PulsarConsumer.

    Attributes:
        policy: What the spec asks for.
        type: Type of the subscription.
        memory: What is remembered.
    """

    policy: Autoscaling
    type: SubscriptionType = SubscriptionType.SHARED
    memory: Memory = field(default_factory=Memory)

    def decide(self, current: int, report: Report, now: float) -> tuple[Decision, Memory]:
        """Decide by what the broker told.

        Args:
            current: Number of consumers that there are to be now.
            report: What the broker told.
            now: Time in seconds; may jump.
        """
        memory = self._look(current, report, now)
        need, cause = self._find_need(current, report, memory, now)
        wanted, limit = self._bound(need, report)
        if not memory.needs:
            # A process that starts anew does not know what was needed before: what there is.
            memory = replace(memory, needs=(Need(now, self._bound(current, report)[0]),))
        windows = self.policy.behavior
        horizon = max(
            windows.scale_up.stabilization_seconds, windows.scale_down.stabilization_seconds
        )
        needs = _trim((*memory.needs, Need(now, wanted)), now, horizon)
        memory = replace(memory, needs=needs)
        if cause is Cause.IDLE and wanted == self.policy.min_replicas == 0:
            # The cooldown was the window.
            return Decision(0, cause), replace(memory, raised=None)
        steady = self._steady(current, wanted, needs, now)
        if steady != wanted:
            limit = Limit.STABILIZATION
        stepped = self._step(current, steady)
        if stepped != steady:
            limit = Limit.STEP
        if report.blocked and stepped > current:
            return self._keep(current, Cause.BLOCKED), memory
        if cause is Cause.AGE and stepped > current:
            memory = replace(memory, raised=now)
        # Bounds of the spec, which may be new, hold at once.
        inside = self._keep(stepped, cause)
        return (inside if inside.limit else Decision(stepped, cause, limit)), memory

    def decide_without_broker(self, current: int, failures: int) -> Decision:
        """Decide while the broker cannot be asked: keep the number, or raise it; never lower it.

        Args:
            current: Number of consumers that there are to be now.
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

    def _count(self, report: Report) -> int:
        """Count what waits and can be consumed."""
        if self.policy.delayed_messages is DelayedMessages.COUNT:
            return sum(topic.messages for topic in report.topics)
        return sum(max(0, topic.messages - topic.delayed) for topic in report.topics)

    def _look(self, current: int, report: Report, now: float) -> Memory:
        """Note since when nothing waits, and how fast consumers are."""
        memory, waiting = self.memory, self._count(report)
        # What is to be expected within the cooldown is no reason to end the last consumer.
        expected = _sum_incoming(report) * self.policy.cooldown_seconds >= 1
        idle = waiting <= self.policy.activation_backlog and not (current and expected)
        since = memory.idle_since
        if since is None or since > now:
            since = now
        rate = memory.rate
        out = sum(topic.rate_out for topic in report.topics)
        consumers = min(current, report.consumers)
        # Only consumers that have enough to do show how fast they are.
        if consumers and out > 0 and waiting >= consumers:
            rate = max(out / consumers, (rate or 0.0) * _FORGETTING)
        return replace(memory, idle_since=since if idle else None, rate=rate)

    def _find_need(
        self, current: int, report: Report, memory: Memory, now: float
    ) -> tuple[int, Cause]:
        waiting, targets = self._count(report), self.policy.targets
        if memory.idle_since is not None:
            if current == 0 or now - memory.idle_since >= self.policy.cooldown_seconds:
                return 0, Cause.IDLE
            need = math.ceil(waiting / targets.backlog_per_replica)
            return max(1, need), Cause.COOLDOWN
        needs = [(math.ceil(waiting / targets.backlog_per_replica), Cause.BACKLOG)]
        if memory.rate:
            incoming = _sum_incoming(report)
            if targets.drain_time_seconds is not None:
                rate = waiting / targets.drain_time_seconds + incoming
                needs.append((math.ceil(rate / memory.rate), Cause.DRAIN_TIME))
            # A backlog that is gone is no reason to leave fewer than keep it so.
            needs.append((min(current, math.ceil(incoming / memory.rate)), Cause.INCOMING))
        needs.append((self._find_need_for_age(current, report, memory, now), Cause.AGE))
        need, cause = max(needs, key=lambda pair: pair[0])
        return max(1, need), cause

    def _find_need_for_age(self, current: int, report: Report, memory: Memory, now: float) -> int:
        limit = self.policy.targets.max_backlog_age_seconds
        if limit is None or report.oldest is None:
            return 0
        age = now - report.oldest
        if age <= limit:
            return 0
        waited = memory.raised is None or not 0 <= now - memory.raised < _AGE_PATIENCE
        # Late already: there must not be fewer than now, whatever the backlog says.
        return math.ceil(current * min(_AGE_GROWTH, age / limit)) if waited else current

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
        """Return how many consumers can be busy at a time; None where there is no limit."""
        if self.policy.partition_limit is PartitionLimit.NEVER:
            return None
        match self.type:
            case SubscriptionType.EXCLUSIVE:
                return 1
            case SubscriptionType.FAILOVER:
                return report.lanes
            case _:
                return None

    def _steady(self, current: int, wanted: int, needs: Iterable[Need], now: float) -> int:
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


def _sum_incoming(report: Report) -> float:
    return sum(topic.rate_in for topic in report.topics)


def _trim(needs: tuple[Need, ...], now: float, horizon: float) -> tuple[Need, ...]:
    """Drop needs that no window reaches, and those of a clock that was ahead."""
    kept = [need for need in needs if need.time <= now and now - need.time <= horizon]
    return tuple(kept[-_REMEMBERED:])
