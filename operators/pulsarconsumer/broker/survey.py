"""Ask all that is wanted to be known of a subscription, and make it where it is to be made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from libs.common.contracts.reading import is_set_at, map_at, maps_at
from operators.pulsarconsumer.broker.errors import AdminConflict, AdminNotFound
from operators.pulsarconsumer.broker.pulsar_admin import Json, PulsarAdmin
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.report import PartReport, Report, TopicReport

_MILLISECONDS = 1000
_PARTITION = re.compile("[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class Question:
    """Say what is wanted to be known.

    Attributes:
        topics: Topics, as the spec names them.
        subscription: Name of the subscription.
        create: Whether to make it where it is missing.
        earliest: Whether a new one begins with the first message there is.
        replicated: Whether a new one keeps its position in all clusters.
        precise: Whether the broker is to count in its ledgers.
        dead_letters: Topic of the dead letters; empty for none.
    """

    topics: tuple[str, ...]
    subscription: str
    create: bool = False
    earliest: bool = False
    replicated: bool = False
    precise: bool = False
    dead_letters: str = ""


async def take_survey(admin: PulsarAdmin, question: Question) -> Report:
    """Ask the broker about each topic.

    Raises:
        AdminError: It did not answer all of it.
    """
    answers, dead = await _together(
        _together(*(_ask_topic(admin, question, name) for name in question.topics)),
        _ask_dead_letters(admin, question.dead_letters),
    )
    return Report(
        topics=tuple(report for report, _ in answers),
        created=any(created for _, created in answers),
        dead_letters=dead,
    )


async def _together(*asked: Awaitable[Any]) -> list[Any]:
    """Wait for all; the first error is that of the whole, and the others are left to end."""
    return list(await asyncio.gather(*asked))


async def _ask_topic(admin: PulsarAdmin, question: Question, name: str) -> tuple[TopicReport, bool]:
    topic = Topic.parse(name)
    report = await _look_at(admin, question, name)
    # A subscription of a topic that is not persistent lives as long as its consumers.
    if report.subscribed or not question.create or topic.domain != "persistent":
        return report, False
    try:
        await admin.create_subscription(
            topic,
            question.subscription,
            earliest=question.earliest,
            replicated=question.replicated,
        )
    except AdminConflict:
        return await _look_at(admin, question, name), False
    return await _look_at(admin, question, name), True


async def _look_at(admin: PulsarAdmin, question: Question, name: str) -> TopicReport:
    topic = Topic.parse(name)
    try:
        partitions = await admin.count_partitions(topic)
        raw = await admin.read_statistics(
            topic, partitioned=partitions > 0, precise=question.precise
        )
    except AdminNotFound:
        return TopicReport(name, exists=False, subscribed=False)
    return parse_statistics(name, raw, question.subscription, partitions)


async def _ask_dead_letters(admin: PulsarAdmin, name: str) -> int | None:
    if not name:
        return None
    topic = Topic.parse(name)
    try:
        partitioned = await admin.count_partitions(topic) > 0
        raw = await admin.read_statistics(topic, partitioned=partitioned)
    except AdminNotFound:
        return 0
    subscriptions = map_at(raw, "subscriptions").values()
    entries = (_number(held, "msgBacklog") for held in subscriptions if isinstance(held, Mapping))
    return round(max(entries, default=0))


def parse_statistics(name: str, raw: Json, subscription: str, partitions: int) -> TopicReport:
    """Read the statistics of a topic; what does not fit counts as nothing.

    `msgBacklog` counts entries, and a batch of a thousand messages is one. Messages are estimated
    by the bytes that wait and the mean size of messages since the broker loaded the topic.
    """
    report = TopicReport(
        name,
        subscribed=False,
        partitions=partitions,
        rate_in=_number(raw, "msgRateIn"),
    )
    held = map_at(raw, "subscriptions", subscription)
    if not held:
        return report
    entries, size = round(_number(held, "msgBacklog")), round(_number(held, "backlogSize"))
    parts = [raw, *map_at(raw, "partitions").values()]
    return replace(
        report,
        subscribed=True,
        entries=entries,
        messages=max(entries, _estimate(raw, held, entries, size)),
        delayed=round(_number(held, "msgDelayed")),
        size=size,
        unacknowledged=round(_number(held, "unackedMessages")),
        rate_out=_number(held, "msgRateOut"),
        rate_redelivered=_number(held, "msgRateRedeliver"),
        consumers=_count_consumers(parts, subscription),
        oldest=_find_oldest(parts, subscription) if entries else None,
        blocked=any(
            is_set_at(part, "subscriptions", subscription, "blockedSubscriptionOnUnackedMsgs")
            for part in parts
        ),
        parts=_list_parts(name, raw, subscription),
    )


def _list_parts(name: str, raw: Json, subscription: str) -> tuple[PartReport, ...]:
    topic = str(Topic.parse(name))
    prefix = f"{topic}-partition-"
    # The names are shown, so a broker that makes some up is not believed.
    named = {
        part: each
        for part, each in map_at(raw, "partitions").items()
        if part.startswith(prefix) and _PARTITION.fullmatch(part, len(prefix))
    }
    held = named or {topic: raw}
    return tuple(
        PartReport(
            part,
            round(_number(map_at(each, "subscriptions", subscription), "msgBacklog")),
            len(maps_at(each, "subscriptions", subscription, "consumers")),
        )
        for part, each in held.items()
    )


def _estimate(raw: Json, held: Json, entries: int, size: int) -> int:
    messages, seen = _number(raw, "msgInCounter"), _number(raw, "bytesInCounter")
    if entries and size and messages and seen:
        return round(size * messages / seen)
    batches = [_number(consumer, "avgMessagesPerEntry") for consumer in maps_at(held, "consumers")]
    return round(entries * max(batches, default=1.0))


def _count_consumers(parts: Iterable[Any], subscription: str) -> int:
    """Count consumers, those of the partition that has most: each connects to all."""
    return max(
        (len(maps_at(part, "subscriptions", subscription, "consumers")) for part in parts),
        default=0,
    )


def _find_oldest(parts: Iterable[Any], subscription: str) -> float | None:
    times = (
        _number(map_at(part, "subscriptions", subscription), "earliestMsgPublishTimeInBacklog")
        for part in parts
    )
    found = min((time for time in times if time > 0), default=0.0)
    return found / _MILLISECONDS if found else None


def _number(raw: Json, name: str) -> float:
    value = raw.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return max(0.0, float(value)) if is_number else 0.0  # type: ignore[arg-type]  # checked above
