"""Topics that PulsarConsumers of a namespace share by mistake. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.conditions import Condition
from libs.common.kinds import Manifest
from operators.pulsarconsumer.api.consuming import RetryStrategy
from operators.pulsarconsumer.api.reasons import ConditionType, Reason
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.app.core.topics import base_of_pattern, full_name
from operators.pulsarconsumer.naming import dead_letter_topic, retry_topic


def describe_clash(consumer: PulsarConsumer, others: Iterable[PulsarConsumer]) -> str:
    """Return which PulsarConsumer has the same retry or dead-letter topic; empty for none.

    PulsarConsumers with the same topics and subscription share them on purpose, and so do those
    that name the same dead-letter topic explicitly.
    """
    retry, dead = _list_own_topics(consumer)
    if not (retry or dead):
        return ""
    for other in sorted(others, key=lambda each: each.metadata.name):
        if not _may_clash(consumer, other):
            continue
        other_retry, other_dead = _list_own_topics(other)
        name = other.metadata.name
        if retry and retry == other_retry:
            return (
                f"the retry topic {retry} is also the retry topic of PulsarConsumer {name}, so "
                "retries can be late; set spec.retry.topic to another topic in one of them"
            )
        if dead and dead == other_dead and not _names_dead_letters(consumer, other):
            return (
                f"the dead-letter topic {dead} is also the dead-letter topic of PulsarConsumer "
                f"{name}; set spec.deadLetter.topic in both, or to another topic in one of them"
            )
    return ""


def evaluate_clash(clash: str) -> Condition | None:
    """Build the condition for a shared topic; None if there is none."""
    if not clash:
        return None
    return Condition.true(ConditionType.TOPICS_SHARED, Reason.NAMES_CLASH, clash)


def parse_others(manifests: Iterable[Manifest], uid: str) -> list[PulsarConsumer]:
    """Return the other PulsarConsumers that have topics of their own."""
    return [
        PulsarConsumer.parse(each)
        for each in manifests
        if (each.get("metadata") or {}).get("uid") != uid
        and {"retry", "deadLetter"} & (each.get("spec") or {}).keys()
    ]


def _may_clash(consumer: PulsarConsumer, other: PulsarConsumer) -> bool:
    spec, of_other = consumer.spec, other.spec
    same = (consumer.topics, spec.topic_pattern) == (other.topics, of_other.topic_pattern)
    if same and spec.subscription_name == of_other.subscription_name:
        return False
    return spec.server_address == of_other.server_address


def _names_dead_letters(*consumers: PulsarConsumer) -> bool:
    named = [each.spec.dead_letter.topic for each in consumers if each.spec.dead_letter]
    return all(named)


def _list_own_topics(consumer: PulsarConsumer) -> tuple[str, str]:
    """Return the retry topic and the dead-letter topic; empty for none."""
    spec = consumer.spec
    retry, dead = retry_topic(consumer), dead_letter_topic(consumer)
    if spec.topic_pattern:
        base = base_of_pattern(spec.topic_pattern, spec.subscription_name)
        retries = spec.retry is not None and spec.retry.strategy is RetryStrategy.RETRY_TOPIC
        retry = retry or (f"{base}-RETRY" if retries else "")
        dead = dead or (f"{base}-DLQ" if spec.dead_letter is not None else "")
    return (full_name(retry) if retry else "", full_name(dead) if dead else "")
