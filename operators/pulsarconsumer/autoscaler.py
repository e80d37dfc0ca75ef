"""The engine Native: computes the number of consumers of a PulsarConsumer.

Pure: the time is passed as an argument. The required number is the maximum of three numbers: for
the size of the backlog, for the time in which it should be processed, and for the age of its oldest
message. It never exceeds the number of waiting entries, because more consumers would have nothing
to do. The bounds in the spec, the subscription type and the stabilization windows then limit it.
The memory between two polls is a value as well and may be lost: after a restart, the autoscaler
starts from the current number and scales down only after a complete window.
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
"""Seconds within which consumers that were added for the age of the backlog must show an effect."""
_AGE_GROWTH: Final = 2.0
"""Maximum factor of one scale-up for the age of the backlog."""
_RATE_WINDOW: Final = 120.0
"""Seconds for which consumers must have been busy before their rate is used.

Brokers publish the mean of the last minute once a minute, so a rate can be two minutes old.
"""
_FORGETTING: Final = 0.98
"""Factor by which the known rate decays at a poll at which busy consumers were slower."""
_REMEMBERED: Final = 4096
"""Maximum number of remembered requirements; the oldest ones are dropped."""


class Cause(StrEnum):
    """Cause is the reason for which a number of consumers was chosen."""

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
    """Limit is the restriction that reduced the number of consumers."""

    NONE = ""
    MIN_REPLICAS = "MinReplicas"
    MAX_REPLICAS = "MaxReplicas"
    PARTITIONS = "Partitions"
    STABILIZATION = "Stabilization"
    STEP = "Step"


@dataclass(frozen=True, slots=True)
class RequiredReplicas:
    """The required number of consumers at a time.

    Attributes:
        time: Time in seconds.
    """

    time: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Busy:
    """A poll at which all consumers were busy.

    Attributes:
        time: Time in seconds.
    """

    time: float
    consumers: int


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """A scale-up for the age of the backlog.

    Attributes:
        time: Time in seconds.
        oldest: Publish time of the message that was the oldest one then.
    """

    time: float
    oldest: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The state of the autoscaler between two polls.

    Attributes:
        needs: Recently required numbers, the oldest first.
        idle_since: Time at which the backlog became empty; None if it is not empty.
        busy: All polls since consumers were last not busy, the oldest first.
        rate: Messages per second that one busy consumer acknowledges.
        raised: Last scale-up for the age of the backlog.
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
        limit: Restriction that reduced it.
    """

    replicas: int
    cause: Cause
    limit: Limit = Limit.NONE


@dataclass(frozen=True, slots=True)
class Scaler:
    """The autoscaler of one PulsarConsumer.

    Attributes:
        policy: Autoscaling in the spec.
    """

    policy: Autoscaling
    type: SubscriptionType = SubscriptionType.SHARED
    memory: Memory = field(default_factory=Memory)

    def decide(self, current: int, report: Report, now: float) -> tuple[Decision, Memory]:
        """Decide based on a report of the broker.

        Args:
            current: Current desired number of consumers.
            report: Report of the broker.
            now: Time in seconds; may jump.
        """
        demand = measure_demand(report, self.policy.delayed_messages)
        memory = self._remember(current, report, demand, now)
        need, cause = self._find_need(current, demand, memory, now)
        wanted, limit = self._bound(need, report)
        if not memory.needs:
            # After a restart, the previous requirements are unknown: assume the current number.
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
            # No stabilization window applies, because the cooldown has already passed.
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
        # The bounds in the spec may have changed; they apply immediately.
        inside = self._keep(stepped, cause)
        return (inside if inside.limit else Decision(stepped, cause, limit)), memory

    def decide_without_broker(self, current: int, failures: int) -> Decision:
        """Decide while the broker cannot be queried: keep or increase the number, never reduce it.

        Args:
            current: Current desired number of consumers.
            failures: Number of consecutive failed queries.
        """
        fallback = self.policy.fallback
        if failures >= fallback.failure_threshold and current <= fallback.replicas:
            return self._keep(fallback.replicas, Cause.FALLBACK)
        return self._keep(current, Cause.KEPT)

    def _keep(self, replicas: int, cause: Cause) -> Decision:
        """Keep a number within the bounds in the spec, which may have changed."""
        policy = self.policy
        bounded = min(max(replicas, policy.min_replicas), policy.max_replicas)
        if bounded > replicas:
            return Decision(bounded, cause, Limit.MIN_REPLICAS)
        return Decision(bounded, cause, Limit.MAX_REPLICAS if bounded < replicas else Limit.NONE)

    def _remember(self, current: int, report: Report, demand: Demand, now: float) -> Memory:
        """Update since when the backlog is empty, and the rate of busy consumers."""
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
        """Return the polls with busy consumers, and the rate of one busy consumer."""
        busy, rate = self.memory.busy, self.memory.rate
        connected = min(current, report.consumers) if report.counted else current
        if not connected or not demand.unclaimed or (busy and busy[-1].time > now):
            # The rate of consumers that wait for messages says nothing about their capacity.
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
            # Without consumers, the broker does not report which delayed messages are due, so all
            # entries count.
            return demand.waiting <= activation
        # If messages are expected within the cooldown, the last consumer stays.
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
            # Even with an empty backlog, keep the consumers that the incoming messages need.
            needs.append((min(current, math.ceil(incoming)), Cause.INCOMING))
        needs.append((self._find_need_for_age(current, demand, memory, now), Cause.AGE))
        need, cause = max(needs, key=lambda pair: pair[0])
        return (need, cause) if need else (1, Cause.UNFINISHED)

    def _find_need_for_age(self, current: int, demand: Demand, memory: Memory, now: float) -> int:
        limit = self.policy.targets.max_backlog_age_seconds
        if limit is None or demand.oldest is None or now - demand.oldest <= limit:
            return 0
        # The backlog is already too old, so no busy consumer is removed.
        kept = min(current, demand.entries)
        raised = memory.raised
        if raised is not None and 0 <= now - raised.time < _AGE_PATIENCE:
            return kept
        if raised is not None and demand.oldest <= raised.oldest:
            # More consumers did not help: the oldest message fails repeatedly, or its partition is
            # blocked.
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
        """Return the smallest change that was required throughout the stabilization window."""
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
    """Drop requirements outside of all windows, and those with a time in the future."""
    kept = [need for need in needs if need.time <= now and now - need.time <= horizon]
    return tuple(kept[-_REMEMBERED:])
