"""Manifests of the children of a PulsarConsumer."""

from operators.pulsarconsumer.resources.deployment import build_deployment
from operators.pulsarconsumer.resources.environment import build_environment
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

__all__ = [
    "HORIZONTAL_POD_AUTOSCALER",
    "POD_MONITOR",
    "SCALED_OBJECT",
    "TRIGGER_AUTHENTICATION",
    "build_autoscaler",
    "build_deployment",
    "build_disruption_budget",
    "build_environment",
    "build_pod_monitor",
    "build_scaled_object",
    "build_trigger_authentication",
]
