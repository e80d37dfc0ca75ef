"""The work that waits for consumers, based on the report of a broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from operators.pulsarconsumer.api.scaling import DelayedMessages
from operators.pulsarconsumer.report import Report


@dataclass(frozen=True, slots=True)
class Demand:
    """The work in all topics of a PulsarConsumer, including its retry topic.

    Attributes:
        messages: Estimated number of due messages, including delayed ones if the spec counts them.
        entries: Number of their entries. Each entry goes to one consumer, so more consumers than
            entries would have nothing to do.
        unclaimed: Number of these entries that no consumer holds yet.
        waiting: All entries, due or not.
        unfinished: Whether the connected consumers must stay: they hold messages, or there are
            delayed messages or messages that wait for their next attempt.
        oldest: Publish time of the oldest due message, in seconds since 1970; None if unknown.
        incoming: Messages published per second.
    """

    messages: int
    entries: int
    unclaimed: int
    waiting: int
    unfinished: bool
    oldest: float | None
    incoming: float


def measure_demand(report: Report, delayed: DelayedMessages) -> Demand:
    """Compute the total work in all topics of a report.

    Args:
        report: Report of the broker.
        delayed: Whether delayed messages count as work.
    """
    consumed = report.consumed
    counted = sum(t.delayed for t in consumed) if delayed is DelayedMessages.COUNT else 0
    # A broker notices that a delayed message is due only while a consumer is connected. Without a
    # consumer, the message would stay delayed in all statistics and would never be delivered.
    unfinished = (
        report.retry_hidden
        or any(t.delayed or t.unacknowledged for t in consumed)
        or (report.retry is not None and report.retry.entries > 0)
    )
    return Demand(
        messages=sum(t.due_messages for t in consumed) + counted,
        entries=sum(t.due_entries for t in consumed) + counted,
        unclaimed=sum(t.unclaimed_entries for t in consumed) + counted,
        waiting=sum(t.entries for t in consumed),
        unfinished=unfinished,
        oldest=report.oldest_due,
        incoming=sum(t.rate_in for t in report.topics),
    )
