"""Reports of a broker about subscriptions. Pure values; `broker` reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from operators.pulsarconsumer.api.reasons import Reason

_DIGITS: Final = 2
"""Significant digits of the numbers in a status, so that a busy topic does not change it often."""


MOST: Final = 2**53
"""Maximum number in the status."""


def round_number(value: float) -> int:
    """Round to two digits; small numbers are exact."""
    value = min(value, MOST)
    if value < 10**_DIGITS:
        return round(value)
    magnitude = 10 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return int(round(value / magnitude) * magnitude)


class StatisticsDetail(IntEnum):
    """Extent of the statistics that are read, from the largest to the smallest."""

    FULL = 0
    JOINED = 1
    """The sum of all partitions, with each consumer once."""
    TOTALS = 2
    """Without consumers."""


@dataclass(frozen=True, slots=True)
class PartReport:
    """A report on one partition, or on a topic without partitions.

    Attributes:
        name: Its name at the broker.
        entries: Number of waiting entries, each a message or a batch.
    """

    name: str
    entries: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A report on one topic and its subscription.

    Attributes:
        exists: Whether the broker knows the topic.
        subscribed: Whether the broker knows the subscription on it.
        partitions: Number of partitions; 0 for a topic without partitions.
        entries: Number of waiting entries, each a message or a batch. Consumers may hold some of
            them.
        messages: Estimated number of messages in these entries.
        delayed: Number of entries that are not due yet. The broker updates it only while consumers
            are connected: without consumers, entries that become due are still included.
        size: Size of the backlog in bytes.
        unacknowledged: Number of messages that consumers hold; 0 for the types Exclusive and
            Failover, for which the broker does not count them.
        rate_in: Messages published per second.
        rate_out: Messages delivered to consumers per second.
        rate_acknowledged: Messages acknowledged per second.
        rate_redelivered: Messages redelivered per second.
        counted: Whether the number of consumers is known.
        oldest: Publish time of the oldest waiting message, in seconds since 1970; None if no
            message waits or the broker does not report it.
        blocked: Whether the broker delivers no more messages until some are acknowledged.
        blocked_consumers: Number of consumers that hold so many messages that the broker delivers
            no more to them.
        parts: Its partitions, or the topic itself if it has none.
    """

    topic: str
    exists: bool = True
    subscribed: bool = True
    partitions: int = 0
    entries: int = 0
    messages: int = 0
    delayed: int = 0
    size: int = 0
    unacknowledged: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    rate_acknowledged: float = 0.0
    rate_redelivered: float = 0.0
    consumers: int = 0
    counted: bool = True
    oldest: float | None = None
    blocked: bool = False
    blocked_consumers: int = 0
    parts: tuple[PartReport, ...] = ()

    @property
    def due_entries(self) -> int:
        """Number of entries that can be delivered now or are held by consumers."""
        return max(0, self.entries - self.delayed)

    @property
    def due_messages(self) -> int:
        """Estimated number of messages in the due entries; delayed messages are never batched."""
        return max(0, self.messages - self.delayed)

    @property
    def unclaimed_entries(self) -> int:
        """Number of due entries that no consumer holds yet."""
        if not self.due_entries:
            return 0
        size = max(1.0, self.due_messages / self.due_entries)
        return max(0, self.due_entries - math.ceil(self.unacknowledged / size))


@dataclass(frozen=True, order=True, slots=True)
class SubscriptionRef:
    """A subscription of a topic.

    Attributes:
        topic: The full name of the topic.
        name: The name of the subscription.
    """

    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class AbandonedReport:
    """The state of a subscription that the spec no longer names."""

    subscription: SubscriptionRef
    exists: bool = True
    entries: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A report on all topics of a PulsarConsumer.

    Attributes:
        topics: One report for each topic, in the order of the spec.
        created: Whether a subscription was created for this report.
        retry: The retry topic; None if there is none, or if its statistics cannot be read.
        retry_hidden: Whether there is a retry topic whose statistics cannot be read.
        attempts: Whether the subscription exists on the topic in which consumers share attempts.
        dead_letters: Number of entries in the dead-letter topic; None if there is none, or if its
            statistics cannot be read.
        detailed_at: Time at which the expensive statistics were last read.
        missing: Topics that do not exist, and that neither the broker nor the operator creates.
        abandoned: Subscriptions that the spec no longer names, if they can be read.
        extents: Extent of the statistics that were read, for topics whose statistics are too long.
        full_at: Time at which their complete statistics should be tried again.
    """

    topics: tuple[TopicReport, ...]
    created: bool = False
    retry: TopicReport | None = None
    retry_hidden: bool = False
    attempts: bool = False
    dead_letters: int | None = None
    detailed_at: float = 0.0
    missing: tuple[str, ...] = ()
    abandoned: tuple[AbandonedReport, ...] = ()
    extents: Mapping[str, StatisticsDetail] = field(default_factory=dict)
    full_at: float = 0.0

    @property
    def consumed(self) -> tuple[TopicReport, ...]:
        """All topics that the consumers read: the topics of the spec and the retry topic."""
        return self.topics if self.retry is None else (*self.topics, self.retry)

    @property
    def subscribed(self) -> bool:
        """Whether the broker knows the subscription on every topic."""
        return all(topic.subscribed for topic in self.topics)

    @property
    def entries(self) -> int:
        """Number of waiting entries in all topics."""
        return sum(topic.entries for topic in self.topics)

    @property
    def consumers(self) -> int:
        """Number of connected consumers of the topic with the most consumers."""
        return max((topic.consumers for topic in self.topics), default=0)

    @property
    def counted(self) -> bool:
        """Whether the number of consumers is known."""
        return all(topic.counted for topic in self.topics)

    @property
    def lanes(self) -> int:
        """Number of partitions of all topics; a topic without partitions counts as one."""
        return sum(max(1, topic.partitions) for topic in self.topics)

    @property
    def parts(self) -> list[PartReport]:
        """Partitions of all topics, and the topics that have none."""
        return [part for topic in self.topics for part in topic.parts]

    @property
    def oldest(self) -> float | None:
        """Publish time of the oldest waiting message, in seconds since 1970."""
        return min((t.oldest for t in self.topics if t.oldest is not None), default=None)

    @property
    def oldest_due(self) -> float | None:
        """Publish time of the oldest due message, in seconds since 1970.

        The broker does not distinguish delayed messages here, so topics with delayed messages are
        ignored.
        """
        found = (t.oldest for t in self.topics if t.oldest is not None and not t.delayed)
        return min(found, default=None)

    @property
    def blocked(self) -> bool:
        """Whether the broker delivers no more messages of some topic."""
        return any(topic.blocked for topic in self.topics)


@dataclass(frozen=True, slots=True)
class BrokerProblem:
    """The reason why a query of a broker failed.

    Attributes:
        message: Message for users; contains no secret and no text from the broker.
        passing: Whether the problem is temporary, so that the request may succeed later.
        ours: Whether the broker was not even queried, because of a temporary problem on our side.
    """

    reason: Reason
    message: str
    passing: bool = False
    ours: bool = False


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The known state of a broker.

    Attributes:
        report: The last response; None if there was none since the process started.
        problem: Why the last query failed; None if it succeeded.
    """

    report: Report | None = None
    problem: BrokerProblem | None = None
    failures: int = 0

    @property
    def asked(self) -> bool:
        """Whether a query has finished since the process started."""
        return self.report is not None or self.problem is not None

    @property
    def fresh(self) -> Report | None:
        """The report, if the last query succeeded."""
        return self.report if self.problem is None else None


NOT_QUERIED = BrokerState()
"""The state before the first query."""
