"""PulsarConsumers that share a retry or dead-letter topic."""

from __future__ import annotations

from typing import Any

import pytest

from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.clashes import describe_clash, parse_others
from operators.pulsarconsumer.samples import build_manifest, parse_consumer

RETRY = {"strategy": "RetryTopic"}


def build(name: str, topic: str, subscription: str, **spec: object) -> PulsarConsumer:
    where = {"topicPattern": topic} if "*" in topic else {"topic": topic}
    return parse_consumer(
        name, **{"topic": None, "subscriptionName": subscription, **where, **spec}
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("x-y", "z"), ("x", "y-z"), "persistent://public/default/x-y-z-RETRY"),
        (("public/default/a-.*", "s"), ("public/default/b-.*", "s"), ""),
        (("a", "s"), ("b", "s"), ""),
        (("a", "s"), ("a", "s"), ""),  # They share the subscription on purpose.
    ],
)
def test_default_names_of_retry_topics(
    first: tuple[str, str], second: tuple[str, str], expected: str
) -> None:
    one, other = build("one", *first, retry=RETRY), build("other", *second, retry=RETRY)

    assert (expected in describe_clash(one, [other])) is True
    assert bool(describe_clash(one, [other])) is bool(expected)
    assert bool(describe_clash(other, [one])) is bool(expected)


def test_named_retry_topic_is_reported_by_its_full_name() -> None:
    one = build("one", "a", "s", retry={**RETRY, "topic": "r"})
    same = build("other", "b", "s", retry={**RETRY, "topic": "persistent://public/default/r"})
    elsewhere = build(
        "third", "b", "s", retry={**RETRY, "topic": "r"}, serverAddress="pulsar://other:6650"
    )

    assert "of PulsarConsumer other, so" in describe_clash(one, [elsewhere, same])
    assert describe_clash(one, [elsewhere]) == ""


def test_dead_letter_topic_that_both_name_is_shared_on_purpose() -> None:
    named: dict[str, Any] = {"deadLetter": {"topic": "d"}}

    assert describe_clash(build("a", "a", "s", **named), [build("b", "b", "s", **named)]) == ""
    default = build("a", "x-y", "z", deadLetter={})
    found = describe_clash(default, [build("b", "x", "y-z", deadLetter={})])
    assert "x-y-z-DLQ is also the dead-letter topic of PulsarConsumer b" in found


def test_consumers_without_copies_are_not_read() -> None:
    plain = build_manifest(name="plain")
    broken = {"metadata": {"uid": "u", "name": "own"}, "spec": {"retry": {"strategy": "?"}}}

    assert parse_others([plain, broken], "u") == []
