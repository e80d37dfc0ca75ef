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
    *children(DEPLOYMENT, *_KEEP, why="manage the Deployments of consumers"),
    *children(
        POD_DISRUPTION_BUDGET,
        *_KEEP,
        why="manage the PodDisruptionBudget of spec.podDisruptionBudget",
    ),
    *children(HORIZONTAL_POD_AUTOSCALER, *_KEEP, why="manage spec.autoscaling with engine HPA"),
    *children(SCALED_OBJECT, *_KEEP, why="manage spec.autoscaling with engine KEDA"),
    *children(TRIGGER_AUTHENTICATION, *_KEEP, why="manage spec.autoscaling with engine KEDA"),
    *children(POD_MONITOR, *_KEEP, why="manage the PodMonitor of spec.metrics.podMonitor"),
    # One by one, by name: there is no list and no watch, so no Secret is held that nobody names.
    grant(SECRET, "get", why="read the credentials for brokers"),
)
"""Rules of the operator itself; the generator adds the rules of the framework."""
