"""Objects for the tests of the operator."""

from __future__ import annotations

from typing import Any, Final

from libs.common.kinds import Manifest, build_object
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer

UID: Final = "11111111-1111-4111-8111-111111111111"
"""UID of the PulsarConsumer that `build_consumer` builds."""
KEPT: Final[Manifest] = {
    "serverAddress": "pulsar://pulsar:6650",
    "topic": "my-topic",
    "subscriptionName": "my-subscription",
    "replicas": 2,
}
"""The fields that the kind has had since its first version."""


def build_spec(**spec: Any) -> Manifest:
    """Build a spec from the original fields and others; None removes a field."""
    return {name: value for name, value in {**KEPT, **spec}.items() if value is not None}


def build_manifest(name: str = "orders", namespace: str = "default", **spec: Any) -> Manifest:
    """Build a PulsarConsumer as a user would apply it."""
    return build_object(PULSAR_CONSUMER, name, namespace, spec=build_spec(**spec))


def build_consumer(name: str = "orders", **spec: Any) -> Manifest:
    """Build a PulsarConsumer as the API server would return it."""
    manifest = build_manifest(name, **spec)
    manifest["metadata"] |= {"uid": UID, "generation": 1}
    return manifest


def build_rollout(deployment: Manifest, ready: int | None = None) -> Manifest:
    """Build the status that the controller of a Deployment would set if all pods run.

    Args:
        deployment: The Deployment.
        ready: Number of ready pods; None for all.
    """
    wanted = deployment["spec"]["replicas"]
    ready = wanted if ready is None else ready
    return {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": wanted,
        "readyReplicas": ready,
        "updatedReplicas": wanted,
        "availableReplicas": ready,
    }


def parse_consumer(name: str = "orders", **spec: Any) -> PulsarConsumer:
    """Build a parsed PulsarConsumer."""
    return PulsarConsumer.parse(build_consumer(name, **spec))
