"""What a broker told about a subscription; values without a way to get them."""

from __future__ import annotations

from dataclasses import dataclass

from operators.pulsarconsumer.api.v1 import Reason


@dataclass(frozen=True, slots=True)
class PartReport:
    """Tell of a topic without partitions, or of one partition.

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
    """Tell of one topic and of the subscription on it.

    Attributes:
        topic: The topic, as the spec names it.
        exists: Whether the broker knows the topic.
        subscribed: Whether the broker knows the subscription on it.
        partitions: Number of partitions; 0 for a topic that has none.
        entries: Entries that wait, each a message or a batch.
        messages: Messages that wait, estimated by the size of batches lately seen.
        delayed: Messages that are not due yet.
        size: Bytes that wait.
        unacknowledged: Messages that consumers hold.
        rate_in: Messages published a second.
        rate_out: Messages handed to consumers a second.
        rate_redelivered: Messages handed out again a second.
        consumers: Consumers that are connected.
        oldest: When the oldest message that waits was published, in seconds since 1970; None when
            nothing waits or the broker does not tell.
        blocked: Whether the broker hands out nothing more until messages are acknowledged.
        parts: Its partitions, or the topic itself where it has none.
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
    rate_redelivered: float = 0.0
    consumers: int = 0
    oldest: float | None = None
    blocked: bool = False
    parts: tuple[PartReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Tell of all topics of a PulsarConsumer.

    Attributes:
        topics: One report a topic, in the order of the spec.
        created: Whether a subscription was made for this report.
        dead_letters: Entries in the dead-letter topic; None where it is not looked at.
    """

    topics: tuple[TopicReport, ...]
    created: bool = False
    dead_letters: int | None = None

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
        """Consumers that are connected, those of the topic that has most."""
        return max((topic.consumers for topic in self.topics), default=0)

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
    def blocked(self) -> bool:
        """Whether some topic hands out nothing more."""
        return any(topic.blocked for topic in self.topics)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Tell why a broker could not be asked.

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
class Survey:
    """Hold what is known of a broker now.

    Attributes:
        report: The last answer; None when there was none since the process began.
        trouble: Why the last look failed; None when it did not.
        failures: How many looks failed in a row.
    """

    report: Report | None = None
    trouble: Trouble | None = None
    failures: int = 0

    @property
    def asked(self) -> bool:
        """Whether a look was finished since the process began."""
        return self.report is not None or self.trouble is not None

    @property
    def fresh(self) -> Report | None:
        """The report, if the last look gave it."""
        return self.report if self.trouble is None else None


UNASKED = Survey()
"""Nothing is known."""
