"""Planning: computes the next writes for a PulsarConsumer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from libs.common.kinds import DEPLOYMENT, POD_DISRUPTION_BUDGET, Kind, Manifest
from libs.common.plan import Apply, Delete, Step
from operators.pulsarconsumer.api.consuming import SubscriptionCreator
from operators.pulsarconsumer.api.scaling import ScalingEngine
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.naming import default_admin_address, qualify_address, retry_topic
from operators.pulsarconsumer.observed import Observed
from operators.pulsarconsumer.resources.deployment import build_deployment
from operators.pulsarconsumer.resources.policies import (
    POD_MONITOR,
    build_disruption_budget,
    build_pod_monitor,
)
from operators.pulsarconsumer.resources.scalers import (
    HORIZONTAL_POD_AUTOSCALER,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
    build_autoscaler,
    build_scaled_object,
    build_trigger_authentication,
)
from operators.pulsarconsumer.resources.validation import find_fault
from operators.pulsarconsumer.seeking import needs_stop
from operators.pulsarconsumer.subscriptions import is_subscribed

OPTIONAL_KINDS: Final = (POD_MONITOR, SCALED_OBJECT, TRIGGER_AUTHENTICATION)
"""Optional kinds, which the cluster may not serve."""
SIDE_KINDS: Final = (POD_DISRUPTION_BUDGET, HORIZONTAL_POD_AUTOSCALER, *OPTIONAL_KINDS)
"""Kinds of which a PulsarConsumer has at most one object."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a PulsarConsumer.

    Attributes:
        batches: Steps in successive batches.
        held: Whether the Deployment waits for the subscription.
        missing: Required kinds that the cluster does not serve.
        fault: Why the consumers would refuse to start with the spec; empty if they would start. If
            set, the pods of the previous spec keep running.
        stopping: Whether the consumers stop for a seek.
    """

    batches: tuple[Sequence[Step], ...]
    replicas: int
    held: bool = False
    missing: tuple[Kind, ...] = ()
    fault: str = ""
    stopping: bool = False


def plan_consumer(
    consumer: PulsarConsumer,
    observed: Observed,
    *,
    image: str,
    owner: Manifest,
    user_ids: bool = True,
) -> Plan:
    """Plan the Deployment and the other children.

    Args:
        consumer: The PulsarConsumer.
        observed: Observed objects.
        image: Image if the spec names none.
        owner: Controller reference.
        user_ids: Whether pods have a fixed user and group.
    """
    replicas = choose_replicas(consumer, observed)
    wanted = _build_sides(consumer, observed, owner)
    missing = tuple(
        kind for kind in wanted if kind in OPTIONAL_KINDS and kind not in observed.served
    )
    sides: list[Step] = [
        Apply(kind, manifest) for kind, manifest in wanted.items() if kind not in missing
    ]
    surplus: list[Step] = [
        Delete.of(kind, manifest)
        for kind, manifest in observed.children.items()
        if kind not in wanted
    ]
    held = is_held(consumer, observed)
    fault = find_fault(consumer)
    deployment: list[Step] = []
    if not held and not fault:
        manifest = build_deployment(
            consumer, replicas=replicas, image=image, owner=owner, user_ids=user_ids
        )
        # A scaler writes replicas as well. If it did so since this was planned, plan again.
        live = observed.deployment if _copies_replicas(consumer, observed) else None
        deployment.append(Apply(DEPLOYMENT, manifest, version=live.version if live else ""))
    # The previous scaler is deleted before another engine scales, so that there is never more than
    # one.
    stopping = needs_stop(consumer, observed)
    return Plan((surplus, deployment, sides), replicas, held, missing, fault, stopping)


def choose_replicas(consumer: PulsarConsumer, observed: Observed) -> int:
    """Choose the number of consumers."""
    spec = consumer.spec
    if spec.paused or needs_stop(consumer, observed):
        return 0
    if spec.autoscaling is None or spec.autoscaling.engine is not ScalingEngine.NATIVE:
        return spec.replicas or 0
    if observed.decision is not None:
        return observed.decision.replicas
    return current_replicas(consumer, observed)


def _copies_replicas(consumer: PulsarConsumer, observed: Observed) -> bool:
    """Return whether the desired number of consumers is the current one of the Deployment."""
    decided = consumer.spec.paused or needs_stop(consumer, observed)
    autoscaling = consumer.spec.autoscaling
    native = autoscaling is not None and autoscaling.engine is ScalingEngine.NATIVE
    return native and not decided and observed.decision is None


def current_replicas(consumer: PulsarConsumer, observed: Observed) -> int:
    """Return the current desired number of consumers, as a basis for the next decision."""
    spec = consumer.spec
    if observed.deployment is not None:
        return observed.deployment.wanted
    if spec.autoscaling is None:
        return spec.replicas or 0
    first = spec.autoscaling.min_replicas if spec.replicas is None else spec.replicas
    return min(max(first, spec.autoscaling.min_replicas), spec.autoscaling.max_replicas)


def is_held(consumer: PulsarConsumer, observed: Observed) -> bool:
    """Return whether pods of the current spec must wait for the subscription.

    Consumers of the previous spec continue in the meantime. After the subscription was seen once, a
    broker that is down blocks nothing.
    """
    if consumer.spec.subscription.create is not SubscriptionCreator.OPERATOR:
        return False
    report = observed.broker_state.report
    if report is not None and report.subscribed:
        return False
    status = consumer.status
    same = status is not None and status.server == consumer.spec.server_address
    return observed.deployment is None or not (same and is_subscribed(consumer))


def needs_broker_state(consumer: PulsarConsumer) -> bool:
    """Return whether the spec needs queries or changes at the broker."""
    spec = consumer.spec
    return (
        spec.autoscaling is not None
        or spec.admin_address is not None
        or spec.subscription.create is SubscriptionCreator.OPERATOR
        or spec.subscription.seek is not None
    )


def topic_text(consumer: PulsarConsumer) -> str:
    """Return the value of `status.topic`."""
    if consumer.spec.topic_pattern is not None:
        return consumer.spec.topic_pattern
    first, *others = consumer.topics
    return f"{first} and {len(others)} more" if others else first


def admin_address(consumer: PulsarConsumer) -> str:
    """Return the address of the admin API: `spec.adminAddress`, or derived by convention."""
    namespace = consumer.metadata.namespace
    if consumer.spec.admin_address is not None:
        return qualify_address(consumer.spec.admin_address, namespace)
    return default_admin_address(consumer.spec.server_address, namespace)


def _build_sides(
    consumer: PulsarConsumer, observed: Observed, owner: Manifest
) -> dict[Kind, Manifest]:
    """Build the objects other than the Deployment."""
    built: dict[Kind, Manifest | None] = {
        POD_DISRUPTION_BUDGET: build_disruption_budget(consumer, owner),
        POD_MONITOR: build_pod_monitor(consumer, owner),
    }
    scaling = consumer.spec.autoscaling
    # While a PulsarConsumer is paused or seeks, it must have no consumers, so its scaler is
    # removed.
    stopped = consumer.spec.paused or needs_stop(consumer, observed)
    if scaling is not None and not stopped:
        if scaling.engine is ScalingEngine.HPA:
            built[HORIZONTAL_POD_AUTOSCALER] = build_autoscaler(consumer, scaling, owner)
        if scaling.engine is ScalingEngine.KEDA:
            built[TRIGGER_AUTHENTICATION] = build_trigger_authentication(consumer, owner)
            built[SCALED_OBJECT] = build_scaled_object(
                consumer,
                scaling,
                owner,
                admin_address=admin_address(consumer),
                partitions=_find_partitions(consumer, observed),
                retries=_find_retry_topic(consumer, observed),
            )
    return {kind: manifest for kind, manifest in built.items() if manifest is not None}


def _find_retry_topic(consumer: PulsarConsumer, observed: Observed) -> str:
    """Return the retry topic; empty until it has a subscription, without which KEDA would fail."""
    report = observed.broker_state.report
    if report is not None:
        known = report.retry is not None and report.retry.subscribed
    else:
        known = consumer.status is not None and consumer.status.retry is not None
    return retry_topic(consumer) if known else ""


def _find_partitions(consumer: PulsarConsumer, observed: Observed) -> Mapping[str, int]:
    """Return the known numbers of partitions: from the broker, otherwise from the last status."""
    report = observed.broker_state.report
    if report is not None:
        return {topic.topic: topic.partitions for topic in report.topics}
    backlog = consumer.status.backlog if consumer.status is not None else None
    known = backlog.partitions if backlog is not None else 0
    return dict.fromkeys(consumer.topics, known)
