"""What a PulsarConsumer shows, and when its pods wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import Manifest
from libs.common.plan import Outcome
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.status import PulsarConsumerStatus
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.autoscaler import Cause, Decision
from operators.pulsarconsumer.naming import dead_letter_topic
from operators.pulsarconsumer.observed import DeploymentView, Observed
from operators.pulsarconsumer.reconcile import is_held, plan_consumer
from operators.pulsarconsumer.report import (
    BrokerProblem,
    BrokerState,
    PartReport,
    Report,
    TopicReport,
    round_number,
)
from operators.pulsarconsumer.resources.scalers import (
    HORIZONTAL_POD_AUTOSCALER,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
)
from operators.pulsarconsumer.samples import UID, build_consumer, parse_consumer
from operators.pulsarconsumer.seeking import SeekProgress, plan_seek
from operators.pulsarconsumer.status import build_status

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
OWNER: Manifest = {"kind": "PulsarConsumer", "name": "orders", "uid": UID, "controller": True}
SUBSCRIBED = BrokerState(Report((TopicReport("my-topic", entries=1234, messages=98765),)))
MISSING = BrokerState(Report((TopicReport("my-topic", subscribed=False),)))


def view(wanted: int = 2, **fields: Any) -> DeploymentView:
    full = {"replicas": wanted, "ready": wanted, "updated": wanted, "current": True}
    return DeploymentView(wanted=wanted, **{**full, **fields})


def show(consumer: PulsarConsumer, observed: Observed) -> Manifest:
    plan = plan_consumer(consumer, observed, image="app:1", owner=OWNER)
    return build_status(consumer, observed, plan, Outcome(), seek=SeekProgress(None), now=NOW)


def reasons(status: Manifest) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("True", Reason.ALL_READY)),
        ({"ready": 1}, ("False", Reason.STARTING)),
        ({"updated": 1}, ("False", Reason.UPDATING)),
        ({"replicas": 3, "updated": 3}, ("False", Reason.SCALING_DOWN)),
        ({"current": False}, ("False", Reason.STARTING)),
        ({"deadline": "too late"}, ("False", Reason.NO_CONSUMER_READY)),
    ],
)
def test_ready_follows_the_deployment(fields: dict[str, Any], expected: tuple[str, Reason]) -> None:
    status = show(parse_consumer(), Observed(deployment=view(**fields)))

    assert reasons(status)["Ready"] == expected


@pytest.mark.parametrize("fields", [{"ready": 1}, {}])
def test_cause_at_the_broker_is_told_where_consumers_are_not_ready(fields: dict[str, Any]) -> None:
    problem = BrokerProblem(Reason.UNREACHABLE, "the admin API does not respond")
    asked = Observed(deployment=view(**fields), broker_state=BrokerState(None, problem, 1))
    status = show(parse_consumer(), asked)
    restarted = parse_consumer()
    restarted = restarted.model_copy(update={"status": PulsarConsumerStatus.model_validate(status)})

    ready = "1 of 2 consumers are ready: the admin API does not respond"
    expected = ready if fields else "2 of 2 consumers are ready"
    assert status["conditions"][0]["message"] == expected
    # A process that has not asked yet shows the same.
    assert show(restarted, Observed(deployment=view(**fields))) == status


def test_topics_in_which_most_waits_are_shown_where_there_are_several() -> None:
    parts = tuple(PartReport(f"orders-partition-{n:02}", 1000 + 100 * n, 2) for n in range(30))
    full = TopicReport("orders", partitions=32, parts=(*parts, PartReport("empty")))

    several = show(
        parse_consumer(), Observed(deployment=view(), broker_state=BrokerState(Report((full,))))
    )
    one = TopicReport("my-topic", entries=5, parts=(PartReport("my-topic", 5),))
    single = show(
        parse_consumer(), Observed(deployment=view(), broker_state=BrokerState(Report((one,))))
    )

    shown = several["backlog"]["topics"]
    assert len(shown) == 20
    assert {"name": "orders-partition-29", "entries": 3900, "consumers": 2} in shown
    assert [each["name"] for each in shown] == sorted(each["name"] for each in shown)
    assert "topics" not in single["backlog"]


def test_restart_shows_on_what_was_shown() -> None:
    first = show(parse_consumer(), Observed(deployment=view(), broker_state=SUBSCRIBED))
    again = PulsarConsumer.parse({**build_consumer(), "status": first})

    assert show(again, Observed(deployment=view())) == first
    assert first["backlog"]["messagesEstimate"] == 99_000


def test_nothing_is_shown_of_a_broker_that_the_operator_cannot_log_in_to_any_more() -> None:
    first = show(parse_consumer(), Observed(deployment=view(), broker_state=SUBSCRIBED))
    token = {"type": "ServiceAccountToken", "serviceAccountToken": {"audience": "pulsar"}}
    changed = PulsarConsumer.parse({**build_consumer(authentication=token), "status": first})

    status = show(changed, Observed(deployment=view()))

    assert "backlog" in first
    assert "backlog" not in status
    for name in ("BrokerReachable", "SubscriptionReady", "AuthenticationValid"):
        assert reasons(status)[name] == ("Unknown", Reason.NOT_ASKED)


def test_small_changes_of_a_busy_topic_change_no_status() -> None:
    other = BrokerState(Report((TopicReport("my-topic", entries=1187, messages=98_801),)))

    assert show(parse_consumer(), Observed(view(), broker_state=SUBSCRIBED)) == show(
        parse_consumer(), Observed(view(), broker_state=other)
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(0, 0), (7.4, 7), (99, 99), (151, 150), (99_950, 100_000)]
)
def test_numbers_are_rounded(value: float, shown: int) -> None:
    assert round_number(value) == shown


def test_broker_that_says_no_is_reachable() -> None:
    problem = BrokerProblem(Reason.AUTHENTICATION_FAILED, "no")

    found = reasons(
        show(parse_consumer(), Observed(view(), broker_state=BrokerState(None, problem, 1)))
    )

    assert found["BrokerReachable"][0] == "True"
    assert found["AuthenticationValid"] == ("False", Reason.AUTHENTICATION_FAILED)
    assert found["SubscriptionReady"][0] == "Unknown"


def test_pods_wait_for_the_subscription_of_the_present_spec_only() -> None:
    create = {"create": "Operator"}
    consumer = parse_consumer(subscription=create)
    status = show(consumer, Observed(view(), broker_state=SUBSCRIBED))
    known = PulsarConsumer.parse({**build_consumer(subscription=create), "status": status})
    changed = build_consumer(subscription=create, topic="other")
    moved = PulsarConsumer.parse({**changed, "status": status})

    assert is_held(consumer, Observed(broker_state=MISSING))
    assert not is_held(consumer, Observed(broker_state=SUBSCRIBED))
    assert not is_held(known, Observed(view())), "a restart holds nothing up"
    assert is_held(moved, Observed(view())), "a new topic does"
    assert show(moved, Observed(view()))["topic"] == "my-topic"


def test_engine_is_told_and_what_held_it_back() -> None:
    consumer = parse_consumer(replicas=None, autoscaling={"maxReplicas": 3})
    decision = Decision(3, Cause.BACKLOG)

    status = show(consumer, Observed(view(3), broker_state=SUBSCRIBED, decision=decision))

    assert status["autoscaling"]["desiredReplicas"] == 3
    assert reasons(status)["ScalingActive"] == ("True", Reason.FOLLOWING_BACKLOG)


def test_seek_keeps_the_time_that_was_noted() -> None:
    manifest = build_consumer(subscription={"seek": {"id": "1", "position": "Latest"}})
    noted = plan_seek(PulsarConsumer.parse(manifest), NOW)
    assert noted is not None
    held = {**manifest, "status": {"lastSeek": noted.to_manifest()}}

    later = plan_seek(PulsarConsumer.parse(held), datetime(2027, 1, 1, tzinfo=UTC))

    assert later == noted
    assert later.target_time == NOW


def test_dead_letters_are_looked_for_where_the_app_puts_them() -> None:
    assert dead_letter_topic(parse_consumer()) == ""
    assert dead_letter_topic(parse_consumer(deadLetter={})) == (
        "persistent://public/default/my-topic-my-subscription-DLQ"
    )
    assert dead_letter_topic(parse_consumer(deadLetter={"topic": "dead"})) == "dead"


@pytest.mark.parametrize(
    ("engine", "conditions", "expected"),
    [
        ("KEDA", None, ("Unknown", Reason.ENGINE_SILENT)),
        # As KEDA creates them, and as it sets them if one trigger of several fails.
        ("KEDA", {"Ready": "Unknown", "Paused": "False"}, ("Unknown", Reason.ENGINE_SILENT)),
        ("KEDA", {"Ready": "Unknown why"}, ("False", Reason.ENGINE_FAILING)),
        ("KEDA", {"Ready": "True", "Active": "False"}, ("True", Reason.DELEGATED)),
        ("KEDA", {"Ready": "False why"}, ("False", Reason.ENGINE_FAILING)),
        ("KEDA", {"Ready": "True", "Fallback": "True"}, ("False", Reason.FALLBACK)),
        ("KEDA", {"Ready": "True", "Paused": "True why"}, ("False", Reason.ENGINE_FAILING)),
        ("KEDA", {"Ready": "True", "HPAActive": "False why"}, ("False", Reason.ENGINE_FAILING)),
        ("HPA", None, ("Unknown", Reason.ENGINE_SILENT)),
        ("HPA", {"ScalingActive": "False"}, ("False", Reason.ENGINE_FAILING)),
        ("HPA", {"ScalingActive": "True"}, ("True", Reason.DELEGATED)),
    ],
)
def test_scaling_is_as_active_as_the_engine_says(
    engine: str, conditions: dict[str, str] | None, expected: tuple[str, Reason]
) -> None:
    consumer = parse_consumer(autoscaling={"engine": engine, "minReplicas": 1})
    kind = SCALED_OBJECT if engine == "KEDA" else HORIZONTAL_POD_AUTOSCALER
    listed = [
        {"type": name, "status": state.split()[0], "message": state.partition(" ")[2]}
        for name, state in (conditions or {}).items()
    ]
    child = {"metadata": {"name": "orders", "uid": "u"}, "status": {"conditions": listed}}
    served = frozenset({SCALED_OBJECT, TRIGGER_AUTHENTICATION})

    status = show(consumer, Observed(view(), children={kind: child}, served=served))

    assert reasons(status)["ScalingActive"] == expected
    if expected[1] == Reason.ENGINE_FAILING and engine == "KEDA":
        assert (find_condition({"status": status}, "ScalingActive") or {})["message"].endswith(
            ": why"
        )


@pytest.mark.parametrize(
    ("poll_seconds", "unanswered", "expected"),
    [
        (15, 60.0, ("True", Reason.DELEGATED)),
        (15, 61.0, ("Unknown", Reason.ENGINE_SILENT)),
        (120, 480.0, ("True", Reason.DELEGATED)),
        (120, 481.0, ("Unknown", Reason.ENGINE_SILENT)),
    ],
)
def test_keda_has_a_minute_or_four_polls_to_react(
    poll_seconds: int, unanswered: float, expected: tuple[str, Reason]
) -> None:
    consumer = parse_consumer(autoscaling={"engine": "KEDA", "pollSeconds": poll_seconds})
    listed = [{"type": "Ready", "status": "True", "message": "ready"}]
    child = {"metadata": {"name": "orders", "uid": "u"}, "status": {"conditions": listed}}
    observed = Observed(
        view(),
        children={SCALED_OBJECT: child},
        served=frozenset({SCALED_OBJECT, TRIGGER_AUTHENTICATION}),
        unanswered=unanswered,
    )

    assert reasons(show(consumer, observed))["ScalingActive"] == expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (TopicReport("my-topic", blocked_consumers=2), "no more messages to 2 consumers"),
        (TopicReport("my-topic", blocked=True), "no more messages to the subscription"),
        (TopicReport("my-topic"), ""),
    ],
)
def test_blocked_consumers_are_reported(topic: TopicReport, expected: str) -> None:
    status = show(parse_consumer(), Observed(view(), broker_state=BrokerState(Report((topic,)))))
    condition = find_condition(status_of(status), "ConsumptionBlocked") or {}

    assert expected in condition.get("message", "")
    assert bool(condition) is bool(expected)


def test_clash_of_topics_is_reported() -> None:
    consumer, observed = parse_consumer(), Observed(view(), broker_state=SUBSCRIBED)
    plan = plan_consumer(consumer, observed, image="app:1", owner=OWNER)
    seek = SeekProgress(None)
    status = build_status(consumer, observed, plan, Outcome(), seek=seek, now=NOW, clash="both")

    assert reasons(status)["TopicsShared"] == ("True", Reason.NAMES_CLASH)


def status_of(status: Manifest) -> Manifest:
    return {"status": status}
