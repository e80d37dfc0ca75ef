"""The part of the status of a PulsarConsumer that concerns its broker. Pure.

Until the first response in a process, the previous values are kept, so that a restart of the
operator does not change the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from libs.common.conditions import Condition, find_condition
from libs.common.crd import StatusCondition
from libs.common.kinds import Kind, Manifest
from operators.pulsarconsumer.api.consuming import SubscriptionCreator
from operators.pulsarconsumer.api.reasons import ConditionType, Reason
from operators.pulsarconsumer.api.scaling import (
    Autoscaling,
    Backlog,
    ScalingEngine,
    ScalingStatus,
    TopicBacklog,
)
from operators.pulsarconsumer.api.status import DeadLetterStatus, PulsarConsumerStatus, RetryStatus
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.autoscaler import Cause
from operators.pulsarconsumer.naming import dead_letter_topic, retry_topic
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.reconcile import Plan
from operators.pulsarconsumer.report import BrokerProblem, PartReport, Report, round_number
from operators.pulsarconsumer.resources.scalers import HORIZONTAL_POD_AUTOSCALER, SCALED_OBJECT
from operators.pulsarconsumer.subscriptions import show_subscriptions

_MINUTE: Final = 60
_ABOUT_LOGIN: Final = frozenset(
    {Reason.AUTHENTICATION_FAILED, Reason.AUTHORIZATION_FAILED, Reason.SECRET_MISSING}
)
_SEVERAL: Final = 2
_SHOWN: Final = 20
"""Maximum number of topics and partitions in the status."""
_SHOWN_FIELDS: Final = (
    "backlog",
    "oldestMessageTime",
    "connectedConsumers",
    "retry",
    "deadLetter",
    "subscriptions",
    "abandonedSubscriptions",
)
_NOT_ASKED: Final = "the broker is not polled"
_NO_LOGIN: Final = (
    "the broker is not polled: only consumers have the token of type ServiceAccountToken; set"
    " spec.adminAuthentication"
)
_ABOUT_BROKER: Final = (
    ConditionType.BROKER_REACHABLE,
    ConditionType.SUBSCRIPTION_READY,
    ConditionType.AUTHENTICATION_VALID,
)
_QUOTED: Final = 500
"""Maximum number of characters to quote from a message of another controller."""
_PATIENCE: Final = 60.0
"""Seconds within which KEDA must react to messages; includes a restart of KEDA."""
_PATIENCE_POLLS: Final = 4
"""The same as a number of polls, if polls are rare."""
_ENGINES: Final = {
    ScalingEngine.KEDA: (SCALED_OBJECT, "Ready"),
    ScalingEngine.HPA: (HORIZONTAL_POD_AUTOSCALER, "ScalingActive"),
}
"""The object of each engine, and its condition that reports whether it scales."""


def show_broker(consumer: PulsarConsumer, observed: Observed, now: datetime) -> Manifest:
    """Build the part of the status that reports the backlog."""
    report = observed.broker_state.report
    if report is None:
        shown_on = _show_on(consumer.status) if consumer.can_call_admin else {}
        return {**shown_on, **show_subscriptions(consumer, None)}
    shown = PulsarConsumerStatus(
        backlog=_build_backlog(report),
        oldest_message_time=_round_time(report.oldest, now),
        connected_consumers=report.consumers,
        retry=_build_retry(consumer, report),
        dead_letter=_build_dead_letter(consumer, report),
    ).to_manifest()
    if not report.counted:
        del shown["connectedConsumers"]
    return {
        **{name: shown[name] for name in _SHOWN_FIELDS if name in shown},
        **show_subscriptions(consumer, report),
    }


def show_scaling(consumer: PulsarConsumer, observed: Observed) -> ScalingStatus | None:
    """Build the status of the engine Native."""
    scaling = consumer.spec.autoscaling
    if scaling is None or scaling.engine is not ScalingEngine.NATIVE or consumer.spec.paused:
        return None
    decision = observed.decision
    if decision is None:
        return consumer.status.autoscaling if consumer.status is not None else None
    return ScalingStatus(
        desired_replicas=decision.replicas,
        reason=str(decision.cause),
        limited_by=str(decision.limit),
    )


def evaluate_broker(
    consumer: PulsarConsumer, observed: Observed, plan: Plan, current: Iterable[StatusCondition]
) -> list[Condition]:
    """Build the conditions about the broker."""
    broker_state = observed.broker_state
    if broker_state.asked:
        conditions = [
            _evaluate_reachable(broker_state.problem),
            _evaluate_subscription(consumer, broker_state.fresh),
            _evaluate_login(broker_state.problem),
        ]
    elif not consumer.can_call_admin:
        conditions = [
            Condition.unknown(kind, Reason.NOT_ASKED, _NO_LOGIN) for kind in _ABOUT_BROKER
        ]
    else:
        before = {condition.type: condition for condition in current}
        conditions = [_keep(before.get(kind), kind) for kind in _ABOUT_BROKER]
    scaling = consumer.spec.autoscaling
    if scaling is not None:
        conditions.append(_evaluate_scaling(consumer, scaling, observed, plan, current))
    return conditions


def evaluate_blocked(observed: Observed) -> Condition | None:
    """Build the condition for consumers that receive nothing more; None if all receive."""
    report = observed.broker_state.report
    if report is None:
        return None
    consumers = sum(topic.blocked_consumers for topic in report.topics)
    if not (consumers or any(topic.blocked for topic in report.topics)):
        return None
    who = f"{consumers} consumers" if consumers else "the subscription"
    message = (
        f"the broker delivers no more messages to {who}: too many are unacknowledged. Handlers"
        " hang, or failed messages wait for their next attempt; without batchIndexAck, each counts"
        " with its whole batch. Set spec.retry.strategy to RetryTopic, or raise"
        " maxUnackedMessagesPerConsumer and maxUnackedMessagesPerSubscription of the namespace"
    )
    return Condition.true(ConditionType.CONSUMPTION_BLOCKED, Reason.UNACKNOWLEDGED_LIMIT, message)


def _show_on(status: PulsarConsumerStatus | None) -> Manifest:
    if status is None:
        return {}
    shown = status.to_manifest()
    return {name: shown[name] for name in _SHOWN_FIELDS[:-2] if name in shown}


def _build_backlog(report: Report) -> Backlog:
    topics = report.topics
    return Backlog(
        entries=round_number(report.entries),
        messages_estimate=round_number(sum(topic.messages for topic in topics)),
        bytes=round_number(sum(topic.size for topic in topics)),
        delayed=round_number(sum(topic.delayed for topic in topics)),
        unacknowledged=round_number(sum(topic.unacknowledged for topic in topics)),
        rate_in=round_number(sum(topic.rate_in for topic in topics)),
        rate_out=round_number(sum(topic.rate_out for topic in topics)),
        rate_redelivered=round_number(sum(topic.rate_redelivered for topic in topics)),
        partitions=sum(topic.partitions for topic in topics),
        topics=_build_topics(report.parts),
    )


def _build_topics(parts: Sequence[PartReport]) -> list[TopicBacklog] | None:
    """Return the parts with the largest backlog, by name; None for a single topic."""
    if len(parts) < _SEVERAL:
        return None
    shown = [
        TopicBacklog(name=part.name, entries=round_number(part.entries), consumers=part.consumers)
        for part in parts
        if part.entries
    ]
    most = sorted(shown, key=lambda part: (-part.entries, part.name))[:_SHOWN]
    return sorted(most, key=lambda part: part.name) or None


def _round_time(oldest: float | None, now: datetime) -> datetime | None:
    """Round a time to the minute; None if it is less than a minute ago, because messages flow."""
    if oldest is None or now.timestamp() - oldest < _MINUTE:
        return None
    return datetime.fromtimestamp(oldest // _MINUTE * _MINUTE, UTC)


def _build_retry(consumer: PulsarConsumer, report: Report) -> RetryStatus | None:
    if report.retry is None or not report.retry.subscribed:
        return None
    return RetryStatus(
        topic=retry_topic(consumer),
        backlog=round_number(report.retry.entries),
        delayed=round_number(report.retry.delayed),
    )


def _build_dead_letter(consumer: PulsarConsumer, report: Report) -> DeadLetterStatus | None:
    topic = dead_letter_topic(consumer)
    if not topic or report.dead_letters is None:
        return None
    return DeadLetterStatus(topic=topic, backlog=report.dead_letters)


def _keep(before: StatusCondition | None, kind: ConditionType) -> Condition:
    if before is None:
        return Condition.unknown(kind, Reason.NOT_ASKED, _NOT_ASKED)
    return Condition(kind, before.status, before.reason, before.message)


def _evaluate_reachable(problem: BrokerProblem | None) -> Condition:
    kind = ConditionType.BROKER_REACHABLE
    if problem is None:
        return Condition.true(kind, Reason.ANSWERED)
    if problem.reason is Reason.SECRET_MISSING:
        return Condition.unknown(kind, problem.reason, problem.message)
    if problem.reason in _ABOUT_LOGIN:
        # A refusal proves that the broker is reachable.
        return Condition.true(kind, Reason.ANSWERED)
    return Condition.false(kind, problem.reason, problem.message)


def _evaluate_login(problem: BrokerProblem | None) -> Condition:
    kind = ConditionType.AUTHENTICATION_VALID
    if problem is None:
        return Condition.true(kind, Reason.ANSWERED)
    if problem.reason in _ABOUT_LOGIN:
        return Condition.false(kind, problem.reason, problem.message)
    return Condition.unknown(kind, problem.reason, problem.message)


def _evaluate_subscription(consumer: PulsarConsumer, report: Report | None) -> Condition:
    kind = ConditionType.SUBSCRIPTION_READY
    if report is None:
        message = "the broker cannot be queried; see BrokerReachable and AuthenticationValid"
        return Condition.unknown(kind, Reason.BROKER_NOT_ASKED, message)
    if report.missing:
        names = ", ".join(report.missing)
        message = f"the broker does not create topics automatically; create {names}"
        return Condition.false(kind, Reason.TOPIC_MISSING, message)
    if report.subscribed:
        return Condition.true(kind, Reason.EXISTS)
    by_operator = consumer.spec.subscription.create is SubscriptionCreator.OPERATOR
    who = "the operator creates it" if by_operator else "the first consumer creates it"
    message = f"spec.subscriptionName does not exist on every topic; {who}"
    return Condition.false(kind, Reason.MISSING, message)


def _evaluate_engine(scaling: Autoscaling, observed: Observed) -> Condition:
    """Build the condition for the object of KEDA, or the HorizontalPodAutoscaler.

    Conditions of a ScaledObject: Ready, Active, Fallback, Paused and, since KEDA 2.20.2, HPAActive
    (keda.sh/docs/latest/reference/scaledobject-spec, apis/keda/v1alpha1/condition_types.go). Ready
    is Unknown with a message if some triggers fail.
    """
    kind, engine = ConditionType.SCALING_ACTIVE, scaling.engine
    of_object, state = _ENGINES[engine]
    manifest = observed.children.get(of_object, {})
    found = find_condition(manifest, state) or {}
    if found.get("status") == "False" or (found.get("message") and found.get("status") != "True"):
        return _quote(of_object, state, found)
    if (find_condition(manifest, "Fallback") or {}).get("status") == "True":
        message = (
            "ScaledObject Fallback: KEDA cannot read the backlog and keeps the consumers, at least"
            f" {scaling.fallback.replicas}; see the Events of the ScaledObject"
        )
        return Condition.false(kind, Reason.FALLBACK, message)
    if (paused := find_condition(manifest, "Paused") or {}).get("status") == "True":
        return _quote(of_object, "Paused", paused)
    if (pods := find_condition(manifest, "HPAActive") or {}).get("status") == "False":
        return _quote(of_object, "HPAActive", pods)
    if found.get("status") != "True":
        message = f"{engine} has not reported on the {of_object.kind} yet; is it running?"
        return Condition.unknown(kind, Reason.ENGINE_SILENT, message)
    # If KEDA stops, the conditions of its ScaledObjects do not change, so they prove nothing.
    if observed.unanswered > max(_PATIENCE, _PATIENCE_POLLS * scaling.poll_seconds):
        message = "messages wait, but KEDA does not react; is it running?"
        return Condition.unknown(kind, Reason.ENGINE_SILENT, message)
    return Condition.true(kind, Reason.DELEGATED, f"{engine} sets spec.replicas")


def _quote(of_object: Kind, state: str, found: Mapping[str, Any]) -> Condition:
    message = f"{of_object.kind} {state}: {str(found.get('message', ''))[:_QUOTED]}"
    return Condition.false(ConditionType.SCALING_ACTIVE, Reason.ENGINE_FAILING, message)


def _evaluate_scaling(
    consumer: PulsarConsumer,
    scaling: Autoscaling,
    observed: Observed,
    plan: Plan,
    current: Iterable[StatusCondition],
) -> Condition:
    kind = ConditionType.SCALING_ACTIVE
    if consumer.spec.paused:
        return Condition.false(kind, Reason.PAUSED, "spec.paused keeps consumers from running")
    if plan.stopping:
        return Condition.false(kind, Reason.SEEKING, "consumers are stopped for a seek")
    if scaling.engine is not ScalingEngine.NATIVE:
        if plan.missing:
            names = ", ".join(str(each) for each in plan.missing)
            message = f"the cluster does not serve {names}; see spec.autoscaling.engine"
            return Condition.false(kind, Reason.ENGINE_MISSING, message)
        return _evaluate_engine(scaling, observed)
    if not observed.broker_state.asked:
        return _keep(next((each for each in current if each.type == kind), None), kind)
    decision = observed.decision
    if observed.broker_state.problem is not None or decision is None:
        fell_back = decision is not None and decision.cause is Cause.FALLBACK
        reason = Reason.FALLBACK if fell_back else Reason.BROKER_NOT_ASKED
        return Condition.false(kind, reason, "the broker cannot be queried; no consumer is removed")
    if decision.cause is Cause.BLOCKED:
        message = "consumers hold too many messages without acknowledging; more would not help"
        return Condition.false(kind, Reason.SUBSCRIPTION_BLOCKED, message)
    message = ""
    if observed.broker_state.report is not None and observed.broker_state.report.retry_hidden:
        message = (
            f"statistics of the retry topic {retry_topic(consumer)} cannot be read, so the last "
            "consumer keeps running; allow the role of the operator to consume it"
        )
    elif consumer.spec.replicas not in (None, decision.replicas):
        message = (
            f"the backlog sets the number of consumers; spec.replicas: {consumer.spec.replicas} is "
            "only the number before the first poll"
        )
    return Condition.true(kind, Reason.FOLLOWING_BACKLOG, message)
