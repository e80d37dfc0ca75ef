"""Status of a PulsarConsumer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from libs.common.conditions import Condition, build_conditions
from libs.common.kinds import Manifest
from libs.common.labels import render_selector
from libs.common.plan import Outcome
from operators.pulsarconsumer.api.reasons import ConditionType, Reason
from operators.pulsarconsumer.api.scaling import ScalingEngine
from operators.pulsarconsumer.api.status import PulsarConsumerStatus, SeekStatus
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.broker_status import (
    evaluate_blocked,
    evaluate_broker,
    show_broker,
    show_scaling,
)
from operators.pulsarconsumer.clashes import evaluate_clash
from operators.pulsarconsumer.naming import selector_labels
from operators.pulsarconsumer.observed import DeploymentView, Observed
from operators.pulsarconsumer.reconcile import Plan, admin_address, topic_text
from operators.pulsarconsumer.seeking import SeekProgress
from operators.pulsarconsumer.subscriptions import evaluate_abandoned

_PAUSED: Final = "spec.paused keeps consumers from running; messages wait in the subscription"
_NOTHING: Final = DeploymentView(0, 0, 0, 0, current=False)


def build_status(
    consumer: PulsarConsumer,
    observed: Observed,
    plan: Plan,
    outcome: Outcome,
    *,
    seek: SeekProgress,
    now: datetime,
    clash: str = "",
) -> Manifest:
    """Build the desired status.

    Args:
        consumer: The PulsarConsumer.
        observed: Observed objects after the steps of this reconcile.
        plan: Plan of this reconcile.
        outcome: Outcome of the plan.
        seek: Progress of the last seek.
        now: Time for conditions whose status changes.
        clash: Which other PulsarConsumer has the same topics for copies; empty for none.
    """
    broker = _evaluate_broker(consumer, observed, plan)
    conditions = [
        *evaluate_deployment(
            consumer,
            observed,
            plan,
            outcome,
            cause=_find_cause(broker),
            seeking=seek.message,
        ),
        *broker,
    ]
    if consumer.spec.paused:
        conditions.append(Condition.true(ConditionType.PAUSED, Reason.PAUSED, _PAUSED))
    if (
        abandoned := evaluate_abandoned(consumer, show_broker(consumer, observed, now))
    ) is not None:
        conditions.append(abandoned)
    conditions += [each for each in (evaluate_clash(clash), evaluate_blocked(observed)) if each]
    # Until the pods run the current spec, the status must not claim the new values.
    unseen = consumer.status is None or not consumer.status.observed_generation
    name_spec = not (plan.held or plan.fault) or unseen
    return _assemble(consumer, observed, conditions, seek.status, now, name_spec=name_spec)


def build_final_status(
    consumer: PulsarConsumer, reason: Reason, message: str, *, now: datetime
) -> Manifest:
    """Build the status of a PulsarConsumer that is being deleted."""
    status = consumer.status or PulsarConsumerStatus()
    conditions = [
        Condition.false(ConditionType.READY, reason, message),
        Condition.true(ConditionType.TERMINATING, reason, message),
    ]
    manifest = status.to_manifest()
    current = manifest.get("conditions") or []
    generation = consumer.metadata.generation
    return {
        **manifest,
        "observedGeneration": generation,
        "conditions": build_conditions(current, conditions, generation=generation, now=now),
    }


def evaluate_deployment(
    consumer: PulsarConsumer,
    observed: Observed,
    plan: Plan,
    outcome: Outcome,
    *,
    cause: str = "",
    seeking: str = "",
) -> list[Condition]:
    """Build the conditions Ready, Available and Progressing.

    Args:
        consumer: The PulsarConsumer.
        observed: Observed objects.
        plan: Plan of this reconcile.
        outcome: Outcome of the plan.
        cause: Problem at the broker because of which consumers may not be ready; empty for none.
        seeking: What a seek waits for while the consumers are stopped; empty for no seek.
    """
    view = observed.deployment or _NOTHING
    ready = _evaluate_ready(consumer, view, plan, outcome, cause, seeking)
    available = view.ready > 0 or plan.replicas == 0
    progressing = ready.reason in (
        Reason.STARTING,
        Reason.UPDATING,
        Reason.SCALING_DOWN,
        Reason.WAITING_FOR_SUBSCRIPTION,
        Reason.SEEKING,
    )
    return [
        ready,
        Condition(
            ConditionType.AVAILABLE,
            "True" if available else "False",
            ready.reason if available else Reason.NO_CONSUMER_READY,
        ),
        Condition(
            ConditionType.PROGRESSING,
            "True" if progressing else "False",
            ready.reason if progressing else Reason.SETTLED,
            seeking if ready.reason == Reason.SEEKING else "",
        ),
    ]


def _find_cause(broker: Sequence[Condition]) -> str:
    about = (ConditionType.BROKER_REACHABLE, ConditionType.AUTHENTICATION_VALID)
    return next(
        (each.message for each in broker if each.type in about and each.status == "False"), ""
    )


def _evaluate_ready(
    consumer: PulsarConsumer,
    view: DeploymentView,
    plan: Plan,
    outcome: Outcome,
    cause: str,
    seeking: str,
) -> Condition:
    kind, wanted = ConditionType.READY, plan.replicas
    error = outcome.first_error()
    if error is not None:
        return Condition.false(kind, Reason.NOT_APPLIED, str(error))
    if plan.fault:
        return Condition.false(kind, Reason.INVALID_SPEC, plan.fault)
    if plan.held:
        message = "pods wait until the broker has the subscription; see SubscriptionReady"
        return Condition.false(kind, Reason.WAITING_FOR_SUBSCRIPTION, message)
    if plan.stopping and seeking:
        return Condition.false(kind, Reason.SEEKING, seeking)
    if not view.current:
        return Condition.false(kind, Reason.STARTING, "the Deployment was not read yet")
    if view.deadline:
        return Condition.false(kind, Reason.NO_CONSUMER_READY, view.deadline)
    if view.updated < min(wanted, view.replicas):
        message = f"{view.updated} of {wanted} consumers run the current spec"
        return Condition.false(kind, Reason.UPDATING, message)
    if view.replicas > wanted:
        message = f"{view.replicas - wanted} of {view.replicas} consumers are stopping"
        return Condition.false(kind, Reason.SCALING_DOWN, message)
    if view.ready < wanted:
        message = f"{view.ready} of {wanted} consumers are ready"
        message = f"{message}: {cause}" if cause else message
        return Condition.false(kind, Reason.STARTING, message)
    if wanted:
        return Condition.true(kind, Reason.ALL_READY, f"{wanted} of {wanted} consumers are ready")
    if consumer.spec.paused:
        return Condition.true(kind, Reason.PAUSED, _PAUSED)
    scaling = consumer.spec.autoscaling
    native = scaling is not None and scaling.engine is ScalingEngine.NATIVE
    why = "the backlog is empty" if native else "spec.replicas is 0"
    return Condition.true(kind, Reason.IDLE, f"no consumer runs: {why}")


def _evaluate_broker(consumer: PulsarConsumer, observed: Observed, plan: Plan) -> list[Condition]:
    current = consumer.status.conditions if consumer.status is not None else []
    return evaluate_broker(consumer, observed, plan, current)


def _assemble(
    consumer: PulsarConsumer,
    observed: Observed,
    conditions: Sequence[Condition],
    seek: SeekStatus | None,
    now: datetime,
    *,
    name_spec: bool,
) -> Manifest:
    before = consumer.status or PulsarConsumerStatus()
    view = observed.deployment or _NOTHING
    scaling = show_scaling(consumer, observed)
    generation = consumer.metadata.generation
    status = PulsarConsumerStatus(
        observed_generation=generation,
        server=consumer.spec.server_address if name_spec else before.server,
        topic=topic_text(consumer) if name_spec else before.topic,
        subscription=consumer.spec.subscription_name if name_spec else before.subscription,
        replicas=view.replicas,
        ready_replicas=view.ready,
        ready=f"{view.ready}/{view.wanted}",
        updated_replicas=view.updated,
        selector=render_selector({"matchLabels": selector_labels(consumer.metadata.name)}),
        admin_address=admin_address(consumer),
        autoscaling=scaling,
        last_seek=seek,
    ).to_manifest()
    current = before.to_manifest().get("conditions") or []
    return {
        **status,
        **show_broker(consumer, observed, now),
        "conditions": build_conditions(current, conditions, generation=generation, now=now),
    }
