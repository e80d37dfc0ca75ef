"""What the soak of consumers counts, in records of calls."""

from __future__ import annotations

from collections import Counter

import pytest

from lab.soak.consumers import MAX_ATTEMPTS, Call, evaluate

TAKEN_OVER = 100.0


def begin(number: int, time: float, pod: str, partition: int = 0) -> Call:
    return Call("begin", time, pod, number, "key", f"1:{number}:{partition}:-1", 1)


@pytest.mark.parametrize(
    ("kind", "time", "expected"),
    [
        ("Failover", TAKEN_OVER + 1.0, (0, 1)),
        ("Failover", TAKEN_OVER + 5.0, (1, 0)),
        ("Exclusive", TAKEN_OVER + 1.0, (1, 0)),
        ("KeyShared", TAKEN_OVER + 1.0, (1, 0)),
        ("Shared", TAKEN_OVER + 1.0, (0, 0)),
    ],
)
def test_message_that_follows_a_later_one_is_out_of_order(
    kind: str, time: float, expected: tuple[int, int]
) -> None:
    """Only a broker with type Failover may send it so late, and only after a change of the pod."""
    calls = [begin(1, 90.0, "a"), begin(3, TAKEN_OVER, "b"), begin(2, time, "b")]

    figures = evaluate(kind, {}, calls, Counter()).figures

    assert (figures["out of order"], figures["sent late by the broker"]) == expected


def test_redelivered_messages_and_other_partitions_are_in_order() -> None:
    calls = [
        begin(1, 90.0, "a"),
        begin(5, 91.0, "a", 1),
        begin(2, 92.0, "a"),
        begin(1, 93.0, "b"),
        begin(3, 94.0, "b"),
    ]

    figures = evaluate("Failover", {}, calls, Counter()).figures

    assert (figures["out of order"], figures["sent late by the broker"]) == (0, 0)
    assert figures["seconds with two busy consumers"] == 0


def test_order_is_that_of_the_topic_and_not_of_a_producer_that_batches_by_key() -> None:
    calls = [
        Call("begin", 90.0, "a", 3, "x", "1:7:-1:1", 1),
        Call("begin", 91.0, "a", 1, "y", "1:8:-1:0", 1),
        Call("begin", 92.0, "a", 4, "y", "2:0:-1:0", 1),
        Call("begin", 93.0, "a", 5, "y", "1:9:-1:0", 1),
    ]

    assert evaluate("Exclusive", {}, calls, Counter()).figures["out of order"] == 1


def test_attempts_of_all_pods_are_counted_for_each_stored_message() -> None:
    once = [begin(1, 90.0 + number, pod) for number, pod in enumerate("aabbb")]
    twice = [
        Call("begin", 99.0 + number, "a", 2, "key", f"1:{number % 2}:0:-1", 1)
        for number in range(8)
    ]
    stored = {1: ("key", True), 2: ("key", True)}
    result = evaluate("Exclusive", stored, [*once, *twice], Counter({1: 1, 2: 2}))

    assert result.figures["most tries"] == MAX_ATTEMPTS + 1
    assert result.figures["poison tried in two pods"] == 1
    assert not [each for each in result.problems if "tries" in each]

    result = evaluate("Exclusive", stored, [*once, begin(1, 99.0, "a"), *twice], Counter())
    assert result.figures["most tries"] == MAX_ATTEMPTS + 2
    assert [each for each in result.problems if "tries" in each]
