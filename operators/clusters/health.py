"""Detection of broken nodes. Pure.

A node is judged by its status in the API of its cluster. If that API does not respond, no node
counts as broken: the operator itself may be disconnected, and rebuilding working nodes would cause
an outage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from libs.contracts.compute import InstanceView
from operators.clusters.api.v1alpha1 import Health, KubernetesCluster
from operators.clusters.observed import Observed


class State(Enum):
    """State of a node."""

    HEALTHY = auto()
    PENDING = auto()
    BROKEN = auto()


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The state of a node, and when it changes without an event.

    Attributes:
        state: Healthy, broken, or pending.
        message: Cause of the state.
        seconds: Seconds until a pending node counts as broken; None for never.
    """

    state: State
    message: str = ""
    seconds: float | None = None


def evaluate(
    instance: InstanceView, observed: Observed, health: Health, now: datetime
) -> NodeHealth:
    """Evaluate the health of one node."""
    name = instance.key.name
    if not observed.workload.reachable:
        return NodeHealth(State.PENDING, "the API of the cluster does not respond")
    if instance.deleting:
        return NodeHealth(State.PENDING, "its machine is being deleted")
    if name in observed.busy:
        return NodeHealth(State.PENDING, "an Operation is in progress on its machine")
    if not instance.vmi_uid or instance.ready_since is None:
        # A new disk would not help a machine that cannot be started.
        return NodeHealth(State.PENDING, instance.message or "its machine does not run")
    node = observed.workload.nodes.get(name)
    if not instance.ready:
        limit = health.node_startup_seconds if node is None else health.unhealthy_seconds
        return _wait(
            instance.ready_since, limit, now, f"its machine is not ready: {instance.message}"
        )
    if node is None:
        return _wait(
            instance.ready_since, health.node_startup_seconds, now, "it has not joined the cluster"
        )
    if node.ready:
        return NodeHealth(State.HEALTHY)
    since = node.since or instance.ready_since
    if since < instance.ready_since:
        # The Node became not ready before its machine started, so the node is starting.
        return _wait(instance.ready_since, health.node_startup_seconds, now, node.message)
    return _wait(since, health.unhealthy_seconds, now, node.message)


def evaluate_all(
    cluster: KubernetesCluster, observed: Observed, now: datetime
) -> dict[str, NodeHealth]:
    """Evaluate the health of all nodes, including the control plane, by name."""
    return {
        name: evaluate(instance, observed, cluster.spec.health, now)
        for name, instance in sorted(observed.instances.items())
    }


def list_broken(
    instances: Iterable[InstanceView], node_health: Mapping[str, NodeHealth]
) -> list[InstanceView]:
    """Return the broken nodes among the given ones."""
    return [each for each in instances if node_health[each.key.name].state is State.BROKEN]


def next_look(node_health: Iterable[NodeHealth]) -> float | None:
    """Return the seconds until a pending node counts as broken; None for never."""
    return min((each.seconds for each in node_health if each.seconds is not None), default=None)


def _wait(since: datetime, limit: int, now: datetime, message: str) -> NodeHealth:
    left = limit - (now - since).total_seconds()
    if left <= 0:
        return NodeHealth(State.BROKEN, message)
    return NodeHealth(State.PENDING, message, left)
