"""Polls of a broker for a PulsarConsumer: its topics, its retry topic, its dead-letter topic.

The poll also creates missing subscriptions, if the operator should create them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from libs.common.reading import map_at
from libs.common.tasks import run_together
from operators.pulsarconsumer.broker.errors import (
    AdminBusy,
    AdminConflict,
    AdminError,
    AdminNotFound,
    AdminTooLong,
)
from operators.pulsarconsumer.broker.pulsar_admin import Json, PulsarAdmin
from operators.pulsarconsumer.broker.statistics import (
    count_consumers,
    parse_statistics,
    read_number,
)
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.report import (
    AbandonedReport,
    Report,
    StatisticsDetail,
    SubscriptionRef,
    TopicReport,
)

DETAILS_SECONDS = 120.0
"""Time between two polls that include expensive statistics, unless the spec needs them."""
EXTENT_SECONDS = 600.0
"""Time before statistics that were too long are read in full again."""


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """The query of a poll.

    Attributes:
        create: Whether to create the subscription if it is missing.
        earliest: Whether a new subscription begins with the first message of the topic.
        replicated: Whether a new subscription replicates its position to all clusters.
        precise: Whether the broker counts entries in its ledgers.
        aged: Whether each poll needs the age of the backlog.
        retries: Retry topic; empty for none.
        attempts: Topic in which consumers share attempts; empty for none.
        dead_letters: Dead-letter topic; empty for none.
        dead_letter_subscription: Subscription that keeps the dead letters.
    """

    topics: tuple[str, ...]
    subscription: str
    create: bool = False
    earliest: bool = False
    replicated: bool = False
    precise: bool = False
    aged: bool = False
    retries: str = ""
    attempts: str = ""
    dead_letters: str = ""
    dead_letter_subscription: str = ""


async def read_broker(
    admin: PulsarAdmin,
    query: StatusQuery,
    previous: Report | None = None,
    now: float = 0.0,
    abandoned: Iterable[SubscriptionRef] = (),
    *,
    tolerates_busy: bool = True,
) -> Report:
    """Query the broker for each topic.

    Args:
        admin: Client of the admin API.
        query: The query.
        previous: The last report, whose expensive statistics are reused for some time.
        now: Time in seconds.
        abandoned: Subscriptions of an earlier spec.
        tolerates_busy: Whether a temporary error of the retry topic or of the topic of attempts is
            reported like a missing permission, because it has occurred before.

    Raises:
        AdminError: The statistics of a topic of the spec cannot be read.
        AdminBusy: The statistics of another topic cannot be read, and this is not tolerated.
    """
    detailed = previous is None or _needs_details(query, previous, now)
    extents: dict[str, StatisticsDetail] = {}
    full_at = now + EXTENT_SECONDS
    if previous is not None and previous.extents and now < previous.full_at:
        extents, full_at = dict(previous.extents), previous.full_at
    poll = _Poll(admin, query, detailed, extents, tolerates_busy)
    reports, (retry, hidden), attempts, dead, earlier = await run_together(
        run_together(*(poll.ask_topic(name) for name in query.topics)),
        poll.ask_retries(),
        poll.ask_attempts(known=previous is not None and not detailed and previous.attempts),
        poll.ask_dead_letters(None if previous is None else previous.dead_letters),
        run_together(*(poll.ask_abandoned(each) for each in abandoned)),
    )
    topics = tuple(report for report, _ in reports)
    if previous is not None and not detailed:
        known = {topic.topic: topic for topic in previous.topics}
        topics = tuple(_keep_details(topic, known.get(topic.topic)) for topic in topics)
    return Report(
        topics=topics,
        created=any(created for _, created in reports),
        retry=retry,
        retry_hidden=hidden,
        attempts=attempts,
        dead_letters=dead,
        detailed_at=now if previous is None or detailed else previous.detailed_at,
        missing=tuple(sorted(poll.missing)),
        abandoned=tuple(each for each in earlier if each is not None),
        extents=poll.extents,
        full_at=full_at,
    )


def _needs_details(query: StatusQuery, previous: Report, now: float) -> bool:
    # Without consumers, the number of messages is estimated from the size of the backlog.
    due = not 0 <= now - previous.detailed_at < DETAILS_SECONDS
    return query.aged or due or (query.create and not previous.consumers)


def _keep_details(topic: TopicReport, before: TopicReport | None) -> TopicReport:
    if before is None or not topic.entries or not before.entries:
        return topic
    return replace(topic, size=before.size, oldest=before.oldest)


@dataclass(frozen=True, slots=True)
class _Poll:
    admin: PulsarAdmin
    query: StatusQuery
    detailed: bool
    extents: dict[str, StatisticsDetail]
    tolerates_busy: bool
    missing: set[str] = field(default_factory=set)

    async def ask_topic(self, name: str) -> tuple[TopicReport, bool]:
        """Return a report, and whether the subscription was created for it."""
        report = await self._read(name)
        query = self.query
        # A subscription of a non-persistent topic exists only while it has consumers.
        volatile = Topic.parse(name).domain != "persistent"
        if report.subscribed or not query.create or volatile:
            return report, False
        try:
            created = await self._create(name, query.subscription, earliest=query.earliest)
        except AdminNotFound:
            # Producers must create the topics in the spec, because they choose the partitions.
            self.missing.add(name)
            return report, False
        return await self._read(name), created

    async def ask_retries(self) -> tuple[TopicReport | None, bool]:
        """Return a report of the retry topic, and whether it is hidden from the operator."""
        query = self.query
        if not query.retries:
            return None, False
        try:
            report = await self._read(query.retries)
        except AdminError as err:
            self._tolerate(err)
            return None, True
        if not report.exists or (not report.subscribed and query.create):
            # Copies that were sent before the subscription exists would be lost.
            await self._provide(query.retries, query.subscription)
        return report, False

    async def ask_attempts(self, *, known: bool) -> bool:
        """Return whether the topic of attempts has its subscription; create it if necessary."""
        query = self.query
        if not query.attempts or known:
            return known
        try:
            if (await self._read(query.attempts)).subscribed:
                return True
            # Consumers count their own attempts without it, so nothing is reported as missing.
            await self._provide(query.attempts, query.subscription, required=False)
            return (await self._read(query.attempts)).subscribed
        except AdminError as err:
            self._tolerate(err)
            return False

    def _tolerate(self, err: AdminError) -> None:
        """Raise an error that may not occur again; its query is repeated soon."""
        if isinstance(err, AdminBusy) and not self.tolerates_busy:
            raise err

    async def ask_dead_letters(self, last: int | None) -> int | None:
        """Return the entries in the dead-letter topic, in the subscription that has most.

        Args:
            last: The last known number, which a temporary error does not change.
        """
        name = self.query.dead_letters
        if not name:
            return None
        try:
            raw, _ = await self._read_statistics(Topic.parse(name))
        except AdminNotFound:
            await self._provide(name, self.query.dead_letter_subscription)
            return 0
        except AdminBusy:
            return last
        except AdminError:
            # The role may be allowed to consume the topic, but not to read its dead letters.
            return None
        held = map_at(raw, "subscriptions")
        if not held:
            # The operator may have crashed after it created the topic and before it created the
            # subscription; without one, dead letters would be lost. If the topic has another
            # subscription, somebody already reads it.
            await self._provide(name, self.query.dead_letter_subscription)
        entries = (
            read_number(each, "msgBacklog") for each in held.values() if isinstance(each, Mapping)
        )
        return round(max(entries, default=0))

    async def _read(self, name: str) -> TopicReport:
        topic, query = Topic.parse(name), self.query
        try:
            raw, partitions = await self._read_statistics(
                topic, precise=query.precise, detailed=self.detailed
            )
        except AdminNotFound:
            return TopicReport(name, exists=False, subscribed=False)
        report = parse_statistics(name, raw, query.subscription, partitions)
        return replace(report, counted=self.extents.get(str(topic)) is not StatisticsDetail.TOTALS)

    async def _read_statistics(
        self, topic: Topic, *, precise: bool = False, detailed: bool = False
    ) -> tuple[Json, int]:
        """Return statistics and the number of partitions; reduce statistics that are too long."""
        partitions = await self.admin.count_partitions(topic)
        known = self.extents.get(str(topic), StatisticsDetail.FULL)
        for extent in StatisticsDetail:
            if extent < known or (extent is StatisticsDetail.JOINED and not partitions):
                continue
            try:
                raw = await self.admin.read_statistics(
                    topic,
                    partitioned=partitions > 0,
                    precise=precise,
                    detailed=detailed,
                    extent=extent,
                )
            except AdminTooLong:
                if extent is StatisticsDetail.TOTALS:
                    raise
                continue
            if extent is not StatisticsDetail.FULL:
                self.extents[str(topic)] = extent
            return raw, partitions
        raise AssertionError("the last extent returns or raises")

    async def ask_abandoned(self, subscription: SubscriptionRef) -> AbandonedReport | None:
        """Return a report of a subscription of an earlier spec; None if it cannot be read."""
        topic = Topic.parse(subscription.topic)
        try:
            raw, _ = await self._read_statistics(topic)
        except AdminNotFound:
            return AbandonedReport(subscription, exists=False)
        except AdminError:
            return None
        found = map_at(raw, "subscriptions", subscription.name)
        parts = [raw, *map_at(raw, "partitions").values()]
        return AbandonedReport(
            subscription,
            exists=bool(found),
            entries=round(read_number(found, "msgBacklog")),
            consumers=count_consumers(parts, subscription.name),
        )

    async def _provide(self, name: str, subscription: str, *, required: bool = True) -> None:
        """Create a topic for the consumers with the subscription that keeps its messages.

        Best effort: the role of the operator may lack the permission, and consumers create both
        themselves, unless the broker does not create topics automatically.
        """
        try:
            await self._create(name, subscription, earliest=True)
        except AdminNotFound:
            try:
                with contextlib.suppress(AdminConflict):
                    await self.admin.create_topic(Topic.parse(name))
                await self._create(name, subscription, earliest=True)
            except AdminError:
                if required:
                    self.missing.add(name)
        except AdminError:
            # The consumers may have the permission.
            return

    async def _create(self, name: str, subscription: str, *, earliest: bool) -> bool:
        try:
            await self.admin.create_subscription(
                Topic.parse(name),
                subscription,
                earliest=earliest,
                replicated=self.query.replicated,
            )
        except AdminConflict:
            return False
        return True
