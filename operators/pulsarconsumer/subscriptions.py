"""Subscriptions of a PulsarConsumer, and abandoned subscriptions of earlier specs. Pure.

A subscription without consumers keeps every message of its topic. If `topics`, `subscriptionName`
or the retry strategy changes, the old subscription remains at the broker. So the status records all
subscriptions that the PulsarConsumer has used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from libs.common.conditions import Condition
from libs.common.kinds import Manifest
from operators.pulsarconsumer.api.reasons import ConditionType, Reason
from operators.pulsarconsumer.api.status import (
    MAX_SUBSCRIPTIONS,
    AbandonedSubscription,
    PulsarConsumerStatus,
    SubscriptionStatus,
)
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.app.core.topics import matches_pattern
from operators.pulsarconsumer.naming import Topic, attempts_topic, retry_topic
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.report import Report, SubscriptionRef, round_number

_NAMED: Final = 3
"""Maximum number of subscriptions in a message."""


def list_subscriptions(consumer: PulsarConsumer) -> tuple[SubscriptionRef, ...]:
    """Return the subscriptions that the consumers of a spec use; none for a topicPattern."""
    topics = [*consumer.topics, *_list_own_topics(consumer)]
    name = consumer.spec.subscription_name
    return tuple(SubscriptionRef(str(Topic.parse(topic)), name) for topic in topics)


def find_abandoned(consumer: PulsarConsumer) -> tuple[SubscriptionRef, ...]:
    """Return the subscriptions that the status records and the spec does not use."""
    status = consumer.status or PulsarConsumerStatus()
    recorded = [
        SubscriptionRef(each.topic, each.name)
        for each in (*(status.subscriptions or ()), *(status.abandoned_subscriptions or ()))
    ]
    used = set(list_subscriptions(consumer))
    left = {each for each in recorded if each not in used and not _matches(consumer, each)}
    return tuple(sorted(left))[:MAX_SUBSCRIPTIONS]


def is_subscribed(consumer: PulsarConsumer) -> bool:
    """Return whether the status records the subscription on every topic of the spec."""
    status = consumer.status or PulsarConsumerStatus()
    recorded = {SubscriptionRef(each.topic, each.name) for each in status.subscriptions or ()}
    own = {str(Topic.parse(topic)) for topic in _list_own_topics(consumer)}
    return all(each in recorded for each in list_subscriptions(consumer) if each.topic not in own)


def find_deletable(
    consumer: PulsarConsumer, observed: Observed, others: Iterable[PulsarConsumer]
) -> tuple[SubscriptionRef, ...]:
    """Return the abandoned subscriptions that may be deleted now.

    The pods of the earlier spec must have ended, no consumer may be connected, and no other
    PulsarConsumer may use the subscription.

    Args:
        consumer: The PulsarConsumer.
        observed: The state of its objects and of the broker.
        others: Other PulsarConsumers.
    """
    view, report = observed.deployment, observed.broker_state.fresh
    if report is None or view is None or not view.current or view.updated < view.replicas:
        return ()
    used = {subscription for other in others for subscription in list_subscriptions(other)}
    left = set(find_abandoned(consumer))
    return tuple(
        each.subscription
        for each in report.abandoned
        if each.exists and not each.consumers and each.subscription in left - used
    )


def show_subscriptions(consumer: PulsarConsumer, report: Report | None) -> Manifest:
    """Build the lists of subscriptions of the status."""
    status = consumer.status or PulsarConsumerStatus()
    used = list_subscriptions(consumer)
    if report is None:
        recorded = {SubscriptionRef(each.topic, each.name) for each in status.subscriptions or ()}
        held = [each for each in used if each in recorded]
    else:
        found = {str(Topic.parse(each.topic)) for each in report.consumed if each.subscribed}
        if report.attempts:
            found.add(attempts_topic(consumer))
        held = [each for each in used if each.topic in found]
    reports = {each.subscription: each for each in (report.abandoned if report else ())}
    backlogs = {
        SubscriptionRef(each.topic, each.name): each.backlog
        for each in status.abandoned_subscriptions or ()
    }
    left = []
    for each in find_abandoned(consumer):
        seen = reports.get(each)
        if seen is None or seen.exists:
            backlog = backlogs.get(each, 0) if seen is None else round_number(seen.entries)
            left.append(AbandonedSubscription(topic=each.topic, name=each.name, backlog=backlog))
    shown: Manifest = {}
    if held:
        listed = [SubscriptionStatus(topic=each.topic, name=each.name) for each in held]
        shown["subscriptions"] = [each.to_manifest() for each in listed]
    if left:
        shown["abandonedSubscriptions"] = [each.to_manifest() for each in left]
    return shown


def evaluate_abandoned(consumer: PulsarConsumer, status: Manifest) -> Condition | None:
    """Build the condition for abandoned subscriptions; None if there are none."""
    left = status.get("abandonedSubscriptions") or []
    if not left:
        return None
    names = [f"{each['name']} on {each['topic']}" for each in left[:_NAMED]]
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    kept = consumer.spec.subscription.deletion_policy == "Retain"
    remedy = (
        "consume them, or set spec.subscription.deletionPolicy to Delete to discard the messages"
        if kept
        else "the operator deletes them when nobody is connected to them"
    )
    message = f"earlier specs left subscriptions that keep a backlog: {', '.join(names)}{more}"
    kind = ConditionType.SUBSCRIPTIONS_ABANDONED
    return Condition.true(kind, Reason.SPEC_CHANGED, f"{message}; {remedy}")


def _list_own_topics(consumer: PulsarConsumer) -> list[str]:
    """Return the topics that the consumers create themselves, without the dead-letter topic."""
    return [topic for topic in (retry_topic(consumer), attempts_topic(consumer)) if topic]


def _matches(consumer: PulsarConsumer, subscription: SubscriptionRef) -> bool:
    pattern = consumer.spec.topic_pattern
    same = subscription.name == consumer.spec.subscription_name
    return same and pattern is not None and matches_pattern(pattern, subscription.topic)
