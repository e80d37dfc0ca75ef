"""Which subscriptions a spec uses, and which an earlier one left behind."""

from __future__ import annotations

from typing import Any

import pytest

from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.observed import DeploymentView, Observed
from operators.pulsarconsumer.report import (
    AbandonedReport,
    BrokerProblem,
    BrokerState,
    Report,
    SubscriptionRef,
    TopicReport,
)
from operators.pulsarconsumer.samples import build_consumer, parse_consumer
from operators.pulsarconsumer.subscriptions import (
    evaluate_abandoned,
    find_abandoned,
    find_deletable,
    is_subscribed,
    list_subscriptions,
    show_subscriptions,
)

ROOT = "persistent://public/default"
ROLLED_OUT = DeploymentView(1, 1, 1, 1, current=True)


def ref(topic: str, name: str = "s") -> SubscriptionRef:
    return SubscriptionRef(f"{ROOT}/{topic}", name)


def recorded(*topics: str, name: str = "s", **spec: Any) -> PulsarConsumer:
    """Build a consumer whose status records subscriptions."""
    manifest = build_consumer(subscriptionName="s", **spec)
    listed = [{"topic": f"{ROOT}/{topic}", "name": name} for topic in topics]
    manifest["status"] = {"subscriptions": listed}
    return PulsarConsumer.parse(manifest)


def test_spec_uses_a_subscription_on_each_topic_and_on_the_retry_topic() -> None:
    consumer = parse_consumer(
        topic=None, topics=["a", "public/default/b"], retry={"strategy": "RetryTopic"}
    )

    names = [each.topic for each in list_subscriptions(consumer)]

    assert names == [f"{ROOT}/a", f"{ROOT}/b", f"{ROOT}/a-my-subscription-RETRY"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"deadLetter": {}}, [f"{ROOT}/a", f"{ROOT}/a-my-subscription-ATTEMPTS"]),
        ({}, [f"{ROOT}/a"]),
        (
            {"deadLetter": {}, "retry": {"strategy": "RetryTopic"}},
            [f"{ROOT}/a", f"{ROOT}/a-my-subscription-RETRY"],
        ),
        (
            {"deadLetter": {}, "topic": None, "topics": ["a", "a-my-subscription-ATTEMPTS"]},
            [f"{ROOT}/a", f"{ROOT}/a-my-subscription-ATTEMPTS"],
        ),
        ({"deadLetter": {}, "topic": None, "topicPattern": f"{ROOT}/a.*"}, []),
        ({"deadLetter": {}, "topic": "non-persistent://x/y/a"}, ["non-persistent://x/y/a"]),
    ],
)
def test_spec_with_dead_letters_uses_a_subscription_on_the_topic_of_attempts(
    spec: dict[str, Any], expected: list[str]
) -> None:
    """As the app does: see `Settings.attempts_topic_name`."""
    consumer = parse_consumer(**({"topic": "a"} | spec))

    assert [each.topic for each in list_subscriptions(consumer)] == expected


def test_subscription_on_the_topic_of_attempts_is_shown_if_it_exists() -> None:
    consumer = recorded("a", topic="a", deadLetter={})

    shown = [
        show_subscriptions(consumer, Report(topics=(TopicReport("a"),), attempts=attempts))
        for attempts in (False, True)
    ]

    names = [[each["topic"] for each in status["subscriptions"]] for status in shown]
    assert names == [[f"{ROOT}/a"], [f"{ROOT}/a", f"{ROOT}/a-s-ATTEMPTS"]]
    assert is_subscribed(consumer), "consumers create the other one"


@pytest.mark.parametrize(
    ("held", "spec", "left"),
    [
        (["a"], {"topic": "a"}, []),
        (["a"], {"topic": "b"}, ["a"]),
        (
            ["a", "b", "a-s-RETRY"],
            {"topic": None, "topics": ["b", "a"], "retry": {"strategy": "RetryTopic"}},
            ["a-s-RETRY"],
        ),
        (["a", "a-s-RETRY"], {"topic": "a", "retry": {"strategy": "NegativeAck"}}, ["a-s-RETRY"]),
        (
            ["a", "a-s-RETRY"],
            {"topic": "a", "retry": {"strategy": "RetryTopic", "topic": "a-s-RETRY"}},
            [],
        ),
        (["a", "a-s-ATTEMPTS"], {"topic": "a"}, ["a-s-ATTEMPTS"]),
        (["a", "a-s-ATTEMPTS"], {"topic": "a", "deadLetter": {}}, []),
        (["a", "x"], {"topic": None, "topicPattern": f"{ROOT}/a.*"}, ["x"]),
    ],
)  # fmt: skip
def test_change_leaves_subscriptions_behind(
    held: list[str], spec: dict[str, Any], left: list[str]
) -> None:
    assert find_abandoned(recorded(*held, **spec)) == tuple(ref(topic) for topic in left)


def test_new_name_leaves_the_old_subscription_behind() -> None:
    consumer = recorded("a", name="old", topic="a")

    assert find_abandoned(consumer) == (ref("a", "old"),)
    assert not is_subscribed(consumer)


def test_second_topic_that_changes_is_not_subscribed_yet() -> None:
    """The status shows both as `a and 1 more`."""
    assert is_subscribed(recorded("a", "b", topic=None, topics=["a", "b"]))
    assert not is_subscribed(recorded("a", "b", topic=None, topics=["a", "c"]))


def test_what_the_broker_no_longer_has_is_forgotten() -> None:
    consumer = recorded("a", "b", topic="c")
    report = Report(
        topics=(TopicReport("c"),),
        abandoned=(
            AbandonedReport(ref("a"), entries=1234),
            AbandonedReport(ref("b"), exists=False),
        ),
    )

    shown = show_subscriptions(consumer, report)

    assert shown == {
        "subscriptions": [{"topic": f"{ROOT}/c", "name": "s"}],
        "abandonedSubscriptions": [{"topic": f"{ROOT}/a", "name": "s", "backlog": 1200}],
    }
    stated = evaluate_abandoned(consumer, shown)
    assert stated is not None
    assert f"s on {ROOT}/a" in stated.message and "deletionPolicy to Delete" in stated.message


def test_outage_keeps_what_was_recorded() -> None:
    consumer = recorded("a", "b", topic="a")

    shown = show_subscriptions(consumer, None)

    assert [each["topic"] for each in shown["subscriptions"]] == [f"{ROOT}/a"]
    assert [each["topic"] for each in shown["abandonedSubscriptions"]] == [f"{ROOT}/b"]


@pytest.mark.parametrize(
    ("view", "consumers", "problem", "other", "deleted"),
    [
        (ROLLED_OUT, 0, False, "x", True),
        (None, 0, False, "x", False),
        (DeploymentView(2, 2, 1, 1, current=True), 0, False, "x", False),
        (DeploymentView(1, 1, 1, 1, current=False), 0, False, "x", False),
        (ROLLED_OUT, 1, False, "x", False),
        (ROLLED_OUT, 0, True, "x", False),
        (ROLLED_OUT, 0, False, "a", False),
    ],
    ids=["left alone", "no pods", "old pods", "not seen", "connected", "outage", "used by other"],
)
def test_subscription_is_deleted_only_if_nobody_uses_it(
    view: DeploymentView | None, consumers: int, problem: bool, other: str, deleted: bool
) -> None:
    report = Report(
        topics=(TopicReport("b"),), abandoned=(AbandonedReport(ref("a"), consumers=consumers),)
    )
    failed = BrokerProblem(Reason.UNREACHABLE, "gone") if problem else None
    observed = Observed(deployment=view, broker_state=BrokerState(report, failed))
    others = [parse_consumer("other", topic=other, subscriptionName="s")]

    found = find_deletable(recorded("a", topic="b"), observed, others)

    assert found == ((ref("a"),) if deleted else ())
