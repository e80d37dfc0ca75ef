"""What the pulsarconsumer operator may do."""

from libs.common.kinds import DEPLOYMENT, POD_DISRUPTION_BUDGET, SECRET
from libs.common.rbac import PolicyRule, children, grant, own
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER
from operators.pulsarconsumer.resources import (
    HORIZONTAL_POD_AUTOSCALER,
    POD_MONITOR,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
)

_KEEP = ("create", "patch", "delete")

RULES: tuple[PolicyRule, ...] = (
    *own(PULSAR_CONSUMER),
    *children(DEPLOYMENT, *_KEEP, why="keep the consumers"),
    *children(POD_DISRUPTION_BUDGET, *_KEEP, why="keep spec.podDisruptionBudget"),
    *children(HORIZONTAL_POD_AUTOSCALER, *_KEEP, why="keep spec.autoscaling of engine HPA"),
    *children(SCALED_OBJECT, *_KEEP, why="keep spec.autoscaling of engine KEDA"),
    *children(TRIGGER_AUTHENTICATION, *_KEEP, why="keep spec.autoscaling of engine KEDA"),
    *children(POD_MONITOR, *_KEEP, why="keep spec.metrics.podMonitor"),
    # One by one, by name: there is no list and no watch, so no Secret is held that nobody names.
    grant(SECRET, "get", why="log in to the brokers as PulsarConsumers say"),
)
"""Rules of the operator itself; those of the framework are added by the generator."""
