"""Statistics of a topic, as the admin API of a broker returns them. Pure.

Invalid values count as 0, because a proxy or another version of the broker may have written them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from libs.common.reading import is_set_at, map_at, maps_at
from operators.pulsarconsumer.broker.pulsar_admin import Json
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.report import MOST, PartReport, TopicReport

_MILLISECONDS = 1000
_MAX_BATCH = 1000
"""Maximum plausible number of messages in an entry, which is the default limit of producers."""
_ACK_RATE = "messageAckRate"
_PARTITION = re.compile("[0-9]{1,6}")


def parse_statistics(name: str, raw: Json, subscription: str, partitions: int) -> TopicReport:
    """Parse the statistics of a topic; invalid values count as 0.

    `msgBacklog` counts the unacknowledged entries, and a batch of 1,000 messages is one entry.
    `backlogSize` includes acknowledged entries after the first unacknowledged one, so it says
    nothing about the number of waiting messages.
    """
    report = TopicReport(
        name,
        subscribed=False,
        partitions=partitions,
        rate_in=read_number(raw, "msgRateIn"),
    )
    held = map_at(raw, "subscriptions", subscription)
    if not held:
        return report
    parts = [raw, *map_at(raw, "partitions").values()]
    entries, delayed = round(read_number(held, "msgBacklog")), round(
        read_number(held, "msgDelayed")
    )
    delayed = min(delayed, entries)
    return replace(
        report,
        subscribed=True,
        entries=entries,
        messages=delayed + round((entries - delayed) * _estimate_batch(raw, subscription, parts)),
        delayed=delayed,
        size=round(read_number(held, "backlogSize")),
        unacknowledged=round(read_number(held, "unackedMessages")),
        rate_out=read_number(held, "msgRateOut"),
        # Brokers before 2.11 do not report acknowledgments.
        rate_acknowledged=read_number(held, _ACK_RATE if _ACK_RATE in held else "msgRateOut"),
        rate_redelivered=read_number(held, "msgRateRedeliver"),
        consumers=count_consumers(parts, subscription),
        oldest=_find_oldest(parts, subscription) if entries else None,
        blocked=any(
            is_set_at(part, "subscriptions", subscription, "blockedSubscriptionOnUnackedMsgs")
            for part in parts
        ),
        blocked_consumers=sum(
            is_set_at(each, "blockedConsumerOnUnackedMsgs")
            for part in parts
            for each in maps_at(part, "subscriptions", subscription, "consumers")
        ),
        parts=_list_parts(name, raw, subscription),
    )


def _list_parts(name: str, raw: Json, subscription: str) -> tuple[PartReport, ...]:
    topic = str(Topic.parse(name))
    prefix = f"{topic}-partition-"
    # The names appear in the status, so names that cannot be partitions of the topic are ignored.
    named = {
        part: each
        for part, each in map_at(raw, "partitions").items()
        if part.startswith(prefix) and _PARTITION.fullmatch(part, len(prefix))
    }
    held = named or {topic: raw}
    return tuple(
        PartReport(
            part,
            round(read_number(map_at(each, "subscriptions", subscription), "msgBacklog")),
            len(maps_at(each, "subscriptions", subscription, "consumers")),
        )
        for part, each in held.items()
    )


def _estimate_batch(raw: Json, subscription: str, parts: Iterable[Any]) -> float:
    """Return the estimated number of messages in an entry, based on recent deliveries."""
    held = map_at(raw, "subscriptions", subscription)
    consumers = [
        consumer
        for part in parts
        for consumer in maps_at(part, "subscriptions", subscription, "consumers")
    ]
    entries = read_number(held, "msgBacklog")
    seen = [
        read_number(consumer, "avgMessagesPerEntry")
        for consumer in consumers
        if read_number(consumer, "msgOutCounter")
    ]
    if seen:
        size = sum(seen) / len(seen)
    elif entries and not read_number(held, "nonContiguousDeletedMessagesRanges"):
        # No entry after the first one is acknowledged, so this is exactly the size of the backlog.
        mean = read_number(raw, "bytesInCounter") / max(1.0, read_number(raw, "msgInCounter"))
        size = read_number(held, "backlogSize") / mean / entries if mean else 1.0
    else:
        size = 1.0
    return min(max(1.0, size), _MAX_BATCH)


def count_consumers(parts: Iterable[Any], subscription: str) -> int:
    """Return the maximum number of consumers of a partition: each consumer connects to all."""
    return max(
        (len(maps_at(part, "subscriptions", subscription, "consumers")) for part in parts),
        default=0,
    )


def _find_oldest(parts: Iterable[Any], subscription: str) -> float | None:
    times = (
        read_number(map_at(part, "subscriptions", subscription), "earliestMsgPublishTimeInBacklog")
        for part in parts
    )
    found = min((time for time in times if time > 0), default=0.0)
    return found / _MILLISECONDS if found else None


def read_number(raw: Json, name: str) -> float:
    """Return a number of the statistics; 0 if it is missing or invalid."""
    value = raw.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    # NaN is not greater than 0, and an integer may not fit into a float.
    return float(min(value, MOST)) if value > 0 else 0.0
