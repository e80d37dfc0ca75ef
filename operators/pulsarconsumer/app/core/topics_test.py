"""Names of topics."""

from __future__ import annotations

import pytest

from operators.pulsarconsumer.app.core.topics import (
    base_of_pattern,
    full_name,
    is_topic,
    matches_pattern,
    without_partition,
)


@pytest.mark.parametrize(
    ("topic", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/t", "persistent://a/b/t"),
        ("persistent://a/b/t", "persistent://a/b/t"),
        ("non-persistent://a/b/t", "non-persistent://a/b/t"),
    ],
)
def test_topic_is_named_in_full(topic: str, full: str) -> None:
    assert full_name(topic) == full
    assert is_topic(topic)


@pytest.mark.parametrize("topic", ["kafka://a/b/t", "persistent://a/t", "a b", "persistent://a//"])
def test_what_no_topic_can_be_called_is_refused(topic: str) -> None:
    assert not is_topic(topic)


def test_partition_is_of_its_topic() -> None:
    assert without_partition("persistent://a/b/t-partition-12") == "persistent://a/b/t"
    assert without_partition("persistent://a/b/t-partition-x") == "persistent://a/b/t-partition-x"


def test_pattern_gives_its_namespace_and_knows_its_topics() -> None:
    pattern = "persistent://acme/shop/orders-.*"

    assert base_of_pattern(pattern, "s") == "persistent://acme/shop/s-a30284ca"
    assert matches_pattern(pattern, "persistent://acme/shop/orders-1")
    assert not matches_pattern(pattern, "persistent://acme/shop/s-s-DLQ")
