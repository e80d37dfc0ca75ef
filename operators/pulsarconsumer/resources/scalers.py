"""Objects of other autoscalers: KEDA, or the HorizontalPodAutoscaler by CPU.

Both scale the PulsarConsumer through its scale subresource, so that this operator remains the only
writer of the Deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from libs.common.kinds import Kind, Manifest
from operators.pulsarconsumer.api.connection import AuthenticationType
from operators.pulsarconsumer.api.scaling import Autoscaling, ScalingStep
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.resources.child import build_child

SCALED_OBJECT: Final = Kind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
"""Kind of KEDA; ask whether it is served."""
TRIGGER_AUTHENTICATION: Final = Kind(
    "keda.sh", "v1alpha1", "TriggerAuthentication", "triggerauthentications"
)
"""Kind of KEDA; ask whether it is served."""
_MODES: Final[Mapping[AuthenticationType, str]] = {
    AuthenticationType.TOKEN: "bearer",
    AuthenticationType.BASIC: "basic",
    AuthenticationType.TLS: "tls",
}
"""Authentication modes of KEDA. It supports OAuth2 as well, but not with key files, so the API
refuses this combination."""
HORIZONTAL_POD_AUTOSCALER: Final = Kind(
    "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"
)


def build_scaled_object(
    consumer: PulsarConsumer,
    scaling: Autoscaling,
    owner: Manifest,
    *,
    admin_address: str,
    partitions: Mapping[str, int],
    retries: str = "",
) -> Manifest:
    """Build the ScaledObject of KEDA: a trigger for each topic, and one for the retry topic.

    Args:
        consumer: The PulsarConsumer.
        scaling: Its autoscaling.
        owner: Controller reference.
        admin_address: URL of the admin API.
        partitions: Number of partitions by topic, 0 or absent for none.
        retries: Retry topic that has a subscription; empty for none.
    """
    triggers = []
    for name in (*consumer.topics, *([retries] if retries else [])):
        trigger: Manifest = {
            "type": "pulsar",
            "metadata": _build_trigger(
                consumer, scaling, Topic.parse(name), admin_address, bool(partitions.get(name))
            ),
        }
        if _needs_secrets(consumer):
            trigger["authenticationRef"] = {"name": consumer.metadata.name}
        triggers.append(trigger)
    spec = {
        "scaleTargetRef": _build_target(consumer),
        "minReplicaCount": scaling.min_replicas,
        "maxReplicaCount": scaling.max_replicas,
        "pollingInterval": scaling.poll_seconds,
        "cooldownPeriod": scaling.cooldown_seconds,
        **_build_fallback(scaling),
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _build_behavior(scaling)}},
        "triggers": triggers,
    }
    return build_child(SCALED_OBJECT, consumer, owner, spec)


def build_trigger_authentication(consumer: PulsarConsumer, owner: Manifest) -> Manifest | None:
    """Build the TriggerAuthentication with which KEDA reads Secrets; None if it needs none."""
    if not _needs_secrets(consumer):
        return None
    references = [
        {"parameter": parameter, "name": name, "key": key}
        for parameter, (name, key) in _find_parameters(consumer).items()
    ]
    return build_child(TRIGGER_AUTHENTICATION, consumer, owner, {"secretTargetRef": references})


def build_autoscaler(consumer: PulsarConsumer, scaling: Autoscaling, owner: Manifest) -> Manifest:
    """Build the HorizontalPodAutoscaler."""
    target = {"type": "Utilization", "averageUtilization": scaling.targets.cpu_utilization_percent}
    spec = {
        "scaleTargetRef": _build_target(consumer),
        "minReplicas": scaling.min_replicas,
        "maxReplicas": scaling.max_replicas,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": _build_behavior(scaling),
    }
    return build_child(HORIZONTAL_POD_AUTOSCALER, consumer, owner, spec)


def _build_target(consumer: PulsarConsumer) -> Manifest:
    return {
        "apiVersion": PULSAR_CONSUMER.api_version,
        "kind": PULSAR_CONSUMER.kind,
        "name": consumer.metadata.name,
    }


def _build_fallback(scaling: Autoscaling) -> Manifest:
    """Build the fallback that prevents KEDA from removing consumers if it cannot read the backlog.

    Without a fallback, KEDA keeps the number. With `replicas: 0`, it would scale to zero.
    """
    fallback = scaling.fallback
    if not fallback.replicas:
        return {}
    return {"fallback": {**fallback.to_manifest(), "behavior": "currentReplicasIfHigher"}}


def _build_behavior(scaling: Autoscaling) -> Manifest:
    def build(step: ScalingStep) -> Manifest:
        rules: Manifest = {"stabilizationWindowSeconds": step.stabilization_seconds}
        if step.max_step is not None:
            rules["policies"] = [{"type": "Pods", "value": step.max_step, "periodSeconds": 15}]
        return rules

    behavior = scaling.behavior
    return {"scaleUp": build(behavior.scale_up), "scaleDown": build(behavior.scale_down)}


def _build_trigger(
    consumer: PulsarConsumer,
    scaling: Autoscaling,
    topic: Topic,
    admin_address: str,
    partitioned: bool,
) -> dict[str, str]:
    metadata = {
        "adminURL": admin_address,
        "topic": str(topic),
        "subscription": consumer.spec.subscription_name,
        "msgBacklogThreshold": str(scaling.targets.backlog_per_replica),
        "activationMsgBacklogThreshold": str(scaling.activation_backlog),
        "isPartitionedTopic": "true" if partitioned else "false",
    }
    login = consumer.admin_login
    if login is not None:
        metadata["authModes"] = _MODES[login.type]
    return metadata


def _needs_secrets(consumer: PulsarConsumer) -> bool:
    # Without an authentication mode, the scaler of KEDA ignores all parameters, even the trusted
    # certificates.
    return consumer.admin_login is not None


def _find_parameters(consumer: PulsarConsumer) -> dict[str, tuple[str, str]]:
    """Return the Secret and key of each parameter, by the names of KEDA's scaler for Pulsar."""
    found: dict[str, tuple[str, str]] = {}
    login, tls = consumer.admin_login, consumer.spec.tls
    if login is not None and login.token is not None:
        reference = login.token.secret_key_ref
        found["bearerToken"] = (reference.name, reference.key)
    if login is not None and login.basic is not None:
        found["username"] = (login.basic.secret_name, "username")
        found["password"] = (login.basic.secret_name, "password")
    if login is not None and login.tls is not None:
        found["cert"] = (login.tls.secret_name, "tls.crt")
        found["key"] = (login.tls.secret_name, "tls.key")
    if tls is not None and tls.trusted_ca_secret_ref is not None:
        found["ca"] = (tls.trusted_ca_secret_ref.name, tls.trusted_ca_secret_ref.key)
    return found
