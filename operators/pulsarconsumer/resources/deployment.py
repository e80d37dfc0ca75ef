"""The Deployment of the consumers."""

from __future__ import annotations

import math
from typing import Final

from libs.common.kinds import DEPLOYMENT, Manifest
from operators.pulsarconsumer.api.consuming import SubscriptionType
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.naming import CONTAINER, selector_labels
from operators.pulsarconsumer.resources.child import build_child
from operators.pulsarconsumer.resources.environment import build_environment
from operators.pulsarconsumer.resources.files import build_volumes
from operators.pulsarconsumer.resources.overlay import merge_pod_spec

HEALTH_PORT: Final = 8081
"""Port of the probes; the port of the metrics is in the spec."""
_NOBODY: Final = 65532
# The files of mounted Secrets belong to fsGroup, so that the app can read them.
_USER_IDS: Final = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), _NOBODY)
_GRACE_SECONDS: Final = 20
"""Seconds that a consumer has to close its connections and its handler after the drain."""
_PROBE_SECONDS: Final = 5
_LIVENESS_PERIOD: Final = 10


def build_deployment(
    consumer: PulsarConsumer,
    *,
    replicas: int,
    image: str,
    owner: Manifest,
    user_ids: bool = True,
) -> Manifest:
    """Build the Deployment.

    Args:
        consumer: The PulsarConsumer.
        replicas: Number of pods; not a part of the template, so a change replaces no pods.
        image: Image if the spec names none.
        owner: Controller reference.
        user_ids: Whether pods have a fixed user and group; otherwise the platform assigns them.
    """
    labels = selector_labels(consumer.metadata.name)
    spec = {
        "replicas": replicas,
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": labels},
        "strategy": _build_strategy(consumer),
        "template": _build_template(consumer, image, user_ids),
    }
    return build_child(DEPLOYMENT, consumer, owner, spec)


def _build_strategy(consumer: PulsarConsumer) -> Manifest:
    # With type Exclusive, a new consumer cannot connect, and so cannot become ready, while the old
    # one is connected. A rolling update would never finish.
    alone = consumer.spec.subscription.type is SubscriptionType.EXCLUSIVE
    bounds = {"maxSurge": 0, "maxUnavailable": 1} if alone else _SHARED_BOUNDS
    return {"type": "RollingUpdate", "rollingUpdate": dict(bounds)}


_SHARED_BOUNDS: Final = {"maxSurge": "25%", "maxUnavailable": "25%"}


def _build_template(consumer: PulsarConsumer, image: str, user_ids: bool) -> Manifest:
    overlay = consumer.spec.template
    metadata: Manifest = {
        # The selector of a Deployment is immutable, so its labels override those of the user.
        "labels": {**overlay.metadata.labels, **selector_labels(consumer.metadata.name)}
    }
    if overlay.metadata.annotations:
        metadata["annotations"] = dict(overlay.metadata.annotations)
    return {
        "metadata": metadata,
        "spec": merge_pod_spec(_build_pod_spec(consumer, image, user_ids), overlay.spec),
    }


def _build_pod_spec(consumer: PulsarConsumer, image: str, user_ids: bool) -> Manifest:
    volumes, mounts = build_volumes(consumer)
    return {
        "containers": [_build_container(consumer, image, mounts)],
        "volumes": volumes,
        "securityContext": {
            "runAsNonRoot": True,
            **(_USER_IDS if user_ids else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "automountServiceAccountToken": False,
        # The environment variables of Services in the namespace are not needed, and there can be
        # thousands.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": consumer.spec.drain.timeout_seconds + _GRACE_SECONDS,
    }


def _build_container(consumer: PulsarConsumer, image: str, mounts: list[Manifest]) -> Manifest:
    container: Manifest = {
        "name": CONTAINER,
        "image": consumer.spec.image or image,
        "imagePullPolicy": "IfNotPresent",
        "env": build_environment(consumer),
        "ports": [
            {"name": "metrics", "containerPort": consumer.spec.metrics.port, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "health"},
            "periodSeconds": 5,
            "timeoutSeconds": _PROBE_SECONDS,
            "failureThreshold": 2,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    if limit := consumer.spec.consumption.handler_timeout_seconds:
        # The app exits itself after that time, unless the handler blocks the interpreter; then the
        # probe fails. Without a time limit, no probe could distinguish a handler that hangs from a
        # slow one.
        container["livenessProbe"] = {
            "httpGet": {"path": "/healthz", "port": "health"},
            "initialDelaySeconds": 10,
            "periodSeconds": _LIVENESS_PERIOD,
            "timeoutSeconds": _PROBE_SECONDS,
            "failureThreshold": 6 + math.ceil(limit / _LIVENESS_PERIOD),
        }
    return container
