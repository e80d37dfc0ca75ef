"""What a broker told about a subscription; values without a way to get them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from operators.pulsarconsumer.api.v1 import Reason

_DIGITS: Final = 2
"""Significant digits of the numbers in a status, so that a busy topic does not change it often."""


def round_number(value: float) -> int:
    """Round to two digits; small numbers are exact."""
    if value < 10**_DIGITS:
        return round(value)
    magnitude = 10 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return int(round(value / magnitude) * magnitude)


class StatisticsDetail(IntEnum):
    """How much of the statistics of a topic is read, from all to least."""

    FULL = 0
    JOINED = 1
    """All partitions as one, with each consumer once."""
    TOTALS = 2
    """Without consumers."""


@dataclass(frozen=True, slots=True)
class PartReport:
    """A report on one partition, or on a topic without partitions.

    Attributes:
        name: Its name at the broker.
        entries: Entries that wait in it.
        consumers: Consumers that are connected to it.
    """

    name: str
    entries: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A report on one topic and its subscription.

    Attributes:
        topic: The topic, as the spec names it.
        exists: Whether the broker knows the topic.
        subscribed: Whether the broker knows the subscription on it.
        partitions: Number of partitions; 0 for a topic that has none.
        entries: Entries that wait, each a message or a batch. Consumers may hold some of them.
        messages: Messages in these entries, estimated.
        delayed: Entries that are not due yet. The broker counts these only while consumers are
            connected: without any, entries that become due stay in this number.
        size: Bytes that wait.
        unacknowledged: Messages that consumers hold; 0 for types Exclusive and Failover, for which
            the broker does not count them.
        rate_in: Messages published a second.
        rate_out: Messages handed to consumers a second.
        rate_acknowledged: Messages acknowledged a second.
        rate_redelivered: Messages handed out again a second.
        consumers: Consumers that are connected.
        counted: Whether the number of consumers is known.
        oldest: When the oldest message that waits was published, in seconds since 1970; None when
            nothing waits or the broker does not tell.
        blocked: Whether the broker hands out nothing more until messages are acknowledged.
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
    parts: tuple[PartReport, ...] = ()

    @property
    def due_entries(self) -> int:
        """Entries that consumers can be given now, or hold already."""
        return max(0, self.entries - self.delayed)

    @property
    def due_messages(self) -> int:
        """Messages in the due entries, estimated; producers do not batch delayed messages."""
        return max(0, self.messages - self.delayed)

    @property
    def unclaimed_entries(self) -> int:
        """Due entries that no consumer holds yet."""
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
    """The state of a subscription that the spec no longer names.

    Attributes:
        subscription: The subscription.
        exists: Whether the broker has it.
        entries: Entries that wait in it.
        consumers: Consumers that are connected to it.
    """

    subscription: SubscriptionRef
    exists: bool = True
    entries: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A report on all topics of a PulsarConsumer.

    Attributes:
        topics: One report a topic, in the order of the spec.
        created: Whether a subscription was created for this report.
        retry: The retry topic; None if there is none, or if its statistics cannot be read.
        retry_hidden: Whether there is a retry topic whose statistics cannot be read.
        dead_letters: Entries in the dead-letter topic; None if there is none, or if its statistics
            cannot be read.
        detailed_at: When the statistics that are expensive for the broker were read last.
        missing: Topics that do not exist, and that neither the broker nor the operator creates.
        abandoned: Subscriptions that the spec no longer names, as far as they can be read.
        extents: How much of the statistics was read of topics whose statistics are too long.
        full_at: When all of their statistics should be read again.
    """

    topics: tuple[TopicReport, ...]
    created: bool = False
    retry: TopicReport | None = None
    retry_hidden: bool = False
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
        """Entries that wait in all topics."""
        return sum(topic.entries for topic in self.topics)

    @property
    def consumers(self) -> int:
        """Number of connected consumers, of the topic with most consumers."""
        return max((topic.consumers for topic in self.topics), default=0)

    @property
    def counted(self) -> bool:
        """Whether the number of consumers is known."""
        return all(topic.counted for topic in self.topics)

    @property
    def lanes(self) -> int:
        """Partitions of all topics; a topic without partitions is one."""
        return sum(max(1, topic.partitions) for topic in self.topics)

    @property
    def parts(self) -> list[PartReport]:
        """Partitions of all topics, and the topics that have none."""
        return [part for topic in self.topics for part in topic.parts]

    @property
    def oldest(self) -> float | None:
        """When the oldest message that waits was published, in seconds since 1970."""
        return min((t.oldest for t in self.topics if t.oldest is not None), default=None)

    @property
    def oldest_due(self) -> float | None:
        """When the oldest message that is due was published, in seconds since 1970.

        The broker does not tell delayed messages from others here, so a topic that has delayed
        messages is left out.
        """
        found = (t.oldest for t in self.topics if t.oldest is not None and not t.delayed)
        return min(found, default=None)

    @property
    def blocked(self) -> bool:
        """Whether some topic hands out nothing more."""
        return any(topic.blocked for topic in self.topics)


@dataclass(frozen=True, slots=True)
class BrokerProblem:
    """The reason why a query of a broker failed.

    Attributes:
        reason: Cause.
        message: Sentence for people; holds no secret and nothing that the other side said.
        passing: Whether it says nothing against what was asked for, which may succeed later.
        ours: Whether it was not even asked, for a reason of ours that passes.
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
        failures: Number of consecutive failed queries.
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
