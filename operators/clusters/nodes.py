"""Plans which nodes are drained, removed, rebuilt, moved and uncordoned. Pure.

After a scale-down of a pool, surplus nodes are drained and removed. A node that is broken, that has
an old version or that `spec.recycle` names is drained and rebuilt by an Operation. The progress is
visible on the Node itself, so it survives a crash: first it is cordoned with our annotation, then
it has no pods, and finally it is removed or rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from libs.common.actions import Action
from libs.common.plan import Create, Delete, Patch, annotate
from libs.contracts.compute import INSTANCE, OPERATION, InstanceView
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.causes import (
    Cause,
    HealthByNode,
    count_rebuilds,
    find_away,
    find_causes,
    find_finished,
    is_at_work,
    is_drained_by_us,
    is_outdated,
    list_open,
    list_rebuildable,
    list_staying,
)
from operators.clusters.etcd import RemoveMember, explain_unsafe
from operators.clusters.health import State, evaluate_all, next_look
from operators.clusters.naming import REBUILDS, RECYCLED
from operators.clusters.node_metadata import NodeUpdate, plan_node_update
from operators.clusters.observed import (
    Node,
    Observed,
    control_plane_names,
    drain_seconds,
    is_node_of,
    list_excess,
    pool_of,
)
from operators.clusters.replacement import explain_blocked, list_lost, plan_member
from operators.clusters.resources import EVICTION, build_move, build_rebuild
from operators.clusters.services import Publish
from operators.clusters.upgrade import VersionStep, plan_versions

_LOOK_AT_DRAIN: Final = 3.0
"""Seconds until the next reconcile while pods are leaving a node."""
_OLD_EVICTION: Final = "LiveMigrateIfPossible"
_AT_ONCE: Final = 0.1
"""Seconds until the next reconcile after one of several steps."""


class NodeStepKind(StrEnum):
    """NodeStepKind is the kind of change of a Node in the managed cluster."""

    CORDON = "Cordon"
    EVICT = "Evict"
    UNCORDON = "Uncordon"
    REMOVE = "Remove"
    MARK = "Mark"


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A step that changes a Node in the managed cluster; each step is safe to repeat.

    Attributes:
        marks: Labels and taints to set, for a step of kind `Mark`.
        version: Resource version of the Node from which `marks` was computed.
    """

    kind: NodeStepKind
    node: str
    uid: str
    marks: NodeUpdate | None = None
    version: str = ""

    def __str__(self) -> str:
        """Render for logs: `cordon Node edge-web-0`."""
        return f"{self.kind.lower()} Node {self.node}"


type ClusterStep = NodeStep | RemoveMember | VersionStep | Publish
"""A step in the managed cluster."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The actions on nodes.

    Attributes:
        actions: Writes in the management cluster, in which the Instances are.
        steps: Steps in the managed cluster, in which the Nodes are.
        seconds: Seconds until the next reconcile; None to wait for an event.
    """

    actions: tuple[Action, ...] = ()
    steps: tuple[ClusterStep, ...] = ()
    seconds: float | None = None


def plan_nodes(cluster: KubernetesCluster, observed: Observed, now: datetime) -> NodePlan:
    """Plan the actions on existing nodes."""
    node_health = evaluate_all(cluster, observed, now)
    removal = _plan_removals(cluster, observed, now)
    rebuild = _plan_rebuilds(cluster, observed, node_health, now)
    plans = [
        NodePlan(steps=plan_versions(cluster, observed)),
        _plan_lost(cluster, observed),
        removal,
        rebuild,
        _plan_gone(cluster, observed),
        _plan_node_updates(cluster, observed),
        _plan_strategies(observed),
    ]
    looks = [plan.seconds for plan in plans if plan.seconds is not None]
    if (look := next_look(node_health.values())) is not None:
        looks.append(look)
    return NodePlan(
        tuple(action for plan in plans for action in plan.actions),
        tuple(step for plan in plans for step in plan.steps),
        min(looks, default=None),
    )


def look_again(seconds: float | None, *, poll: float | None, refused: bool) -> float | None:
    """Return the seconds until the next reconcile; None to wait for an event.

    Args:
        seconds: Seconds that the plan requests; None for none.
        poll: Interval of the queries of the managed cluster; None if it cannot be queried yet.
        refused: Whether the API of the managed cluster refused a step. Then the request of the plan
            is ignored, because it would repeat the step immediately.
    """
    wishes = [each for each in (seconds, poll) if each is not None]
    return poll if refused and poll is not None else min(wishes, default=None)


def _plan_removals(cluster: KubernetesCluster, observed: Observed, now: datetime) -> NodePlan:
    plans = [
        _plan_removal(cluster, observed, instance, now)
        for instance in list_excess(cluster, observed)
        if not instance.deleting and instance.key.name not in observed.busy
    ]
    waits = [plan.seconds for plan in plans if plan.seconds is not None]
    return NodePlan(
        tuple(action for plan in plans for action in plan.actions),
        tuple(step for plan in plans for step in plan.steps),
        min(waits, default=None),
    )


def _plan_removal(
    cluster: KubernetesCluster, observed: Observed, instance: InstanceView, now: datetime
) -> NodePlan:
    drain = _plan_drain(cluster, observed, instance, now)
    if drain is not None:
        return drain
    name = instance.key.name
    step = Delete(INSTANCE, instance.key, instance.uid)
    return NodePlan((Action(step, Reason.DELETING_NODE, f"Removing node {name}"),))


def _plan_drain(
    cluster: KubernetesCluster, observed: Observed, instance: InstanceView, now: datetime
) -> NodePlan | None:
    """Plan the next step of draining a node; None if no pods are left to wait for."""
    limit = drain_seconds(cluster, instance)
    if limit == 0:
        return None
    if not observed.workload.reachable:
        return NodePlan()
    node = observed.workload.nodes.get(instance.key.name)
    if node is None:
        return None
    if node.draining_since is None or not node.cordoned:
        return NodePlan(steps=(_step(NodeStepKind.CORDON, node),), seconds=_AT_ONCE)
    spent = (now - node.draining_since).total_seconds()
    if node.pods_left == 0 or spent >= limit:
        return None
    return NodePlan(steps=(_step(NodeStepKind.EVICT, node),), seconds=_LOOK_AT_DRAIN)


def _plan_rebuilds(
    cluster: KubernetesCluster, observed: Observed, node_health: HealthByNode, now: datetime
) -> NodePlan:
    causes = find_causes(cluster, observed, node_health)
    actions = tuple(_record(observed, causes, node_health))
    steps = tuple(_give_back(cluster, observed, causes, node_health))
    cause = None if is_at_work(observed) else _choose(cluster, observed, node_health)
    away = find_away(cluster, observed, node_health)
    if away is not None and cause is not None and cause.is_move:
        # Nobody can drain a host that waits for a node that stays broken.
        away = away if node_health[away.key.name].state is State.PENDING else None
    if cause is None or cause.node in observed.busy or away is not None:
        return NodePlan(actions, steps)
    if not (observed.workload.reachable or _moves_alone(cluster, cause)):
        return NodePlan(actions, steps)
    begun = _plan_rebuild(cluster, observed, cause, now)
    return NodePlan((*actions, *begun.actions), (*steps, *begun.steps), begun.seconds)


def _choose(
    cluster: KubernetesCluster, observed: Observed, node_health: HealthByNode
) -> Cause | None:
    """Choose the node to rebuild next. A rebuild that has begun is finished before any other."""
    open_ = [
        cause
        for cause in list_open(cluster, observed, node_health)
        if is_drained_by_us(observed, cause.instance)
        or not cause.is_plane
        or not explain_blocked(cluster, observed, cause)
    ]
    return min(open_, key=lambda each: not is_drained_by_us(observed, each.instance), default=None)


def _plan_rebuild(
    cluster: KubernetesCluster, observed: Observed, cause: Cause, now: datetime
) -> NodePlan:
    migrates = cause.type == "Migrate"
    if not (migrates or _moves_alone(cluster, cause)):
        drain = _plan_drain(cluster, observed, cause.instance, now)
        if drain is not None:
            return drain
    if cause.is_plane:
        if explain_blocked(cluster, observed, cause):
            return NodePlan()
        member = None if cause.is_move else plan_member(observed, cause.node)
        if member is not None:
            return NodePlan(steps=(member,), seconds=_AT_ONCE)
    if cause.is_move:
        step = Create(OPERATION, build_move(cluster, cause.operation, cause.instance, cause.type))
        note = f"Moving node {cause.node} away from {cause.instance.node}, which is being drained"
        return NodePlan((Action(step, cause.reason, note),))
    step = Create(OPERATION, build_rebuild(cluster, cause.operation, cause.instance))
    warning = cause.reason is Reason.REBUILDING
    count, last = count_rebuilds(cause)
    if warning and last != cause.operation:
        # Each new disk is a new cause, so a broken image would be rebuilt without an end.
        mark = _mark(cause.instance, REBUILDS, f"{count + 1} {cause.operation}")
        return NodePlan((Action(mark, Reason.APPLIED),), seconds=_AT_ONCE)
    return NodePlan((Action(step, cause.reason, f"Rebuilding node {cause.node}", warning),))


def _moves_alone(cluster: KubernetesCluster, cause: Cause) -> bool:
    """Return whether the only node of a control plane moves: it serves the API for its drain."""
    return cause.is_move and cause.is_plane and cluster.spec.control_plane.count == 1


def _record(
    observed: Observed, causes: Iterable[Cause], node_health: HealthByNode
) -> Iterable[Action]:
    """Record the rebuilds requested by spec.recycle that have been carried out.

    A node that has become healthy loses the count of its rebuilds.
    """
    for name, each in sorted(observed.instances.items()):
        if REBUILDS in each.annotations and node_health[name].state is State.HEALTHY:
            yield Action(_mark(each, REBUILDS, ""), Reason.APPLIED)
    for cause in causes:
        operation = find_finished(observed, cause)
        if operation is None or not cause.token:
            continue
        step, name = _mark(cause.instance, RECYCLED, cause.token), cause.node
        note = f"Rebuilt node {name}" if operation.succeeded else f"Could not rebuild node {name}"
        yield Action(step, Reason.RECYCLED, note, warning=not operation.succeeded)


def _mark(instance: InstanceView, name: str, value: str) -> Patch:
    patch = [annotate(instance.annotations, name, value)]
    return Patch(INSTANCE, instance.key, instance.uid, patch, resource_version=instance.version)


def _give_back(
    cluster: KubernetesCluster,
    observed: Observed,
    causes: Iterable[Cause],
    node_health: HealthByNode,
) -> Iterable[NodeStep]:
    """Uncordon nodes that were drained and will stay, after they are ready."""
    needed = {
        cause.node
        for cause in causes
        if cause.reason is not Reason.UPGRADING
        or find_finished(observed, cause) is None
        or is_outdated(observed, cause)
    }
    for instance in list_rebuildable(cluster, observed):
        name = instance.key.name
        node = observed.workload.nodes.get(name)
        ours = node is not None and node.draining_since is not None
        at_work = name in needed or name in observed.busy
        if node is not None and ours and not at_work and node_health[name].state is State.HEALTHY:
            yield _step(NodeStepKind.UNCORDON, node)


def _plan_lost(cluster: KubernetesCluster, observed: Observed) -> NodePlan:
    """Plan the clean-up of lost control plane nodes: first the etcd member, then the Node."""
    for name in list_lost(cluster, observed):
        etcd, node = observed.workload.etcd, observed.workload.nodes.get(name)
        if not observed.workload.reachable or not etcd.is_known:
            continue
        step = plan_member(observed, name)
        if step is not None:
            if explain_unsafe(etcd, step.member):
                continue
            return NodePlan(steps=(step,), seconds=_AT_ONCE)
        if node is not None:
            return NodePlan(steps=(_step(NodeStepKind.REMOVE, node),), seconds=_AT_ONCE)
    return NodePlan()


def _plan_gone(cluster: KubernetesCluster, observed: Observed) -> NodePlan:
    """Plan the removal of Nodes whose machine no longer exists."""
    return NodePlan(
        steps=tuple(
            _step(NodeStepKind.REMOVE, node)
            for name, node in sorted(observed.workload.nodes.items())
            if name not in observed.instances and is_node_of(cluster, node)
        )
    )


def _plan_node_updates(cluster: KubernetesCluster, observed: Observed) -> NodePlan:
    """Plan the updates of Nodes that do not have the labels and taints of their pool."""
    steps = []
    planes = control_plane_names(cluster)
    for instance in list_staying(cluster, observed):
        if instance.key.name in planes:
            continue
        node = observed.workload.nodes.get(instance.key.name)
        pool = pool_of(cluster, instance)
        marks = plan_node_update(pool, node) if node is not None and pool is not None else None
        if node is not None and marks is not None:
            step = NodeStep(NodeStepKind.MARK, node.name, node.uid, marks, node.resource_version)
            steps.append(step)
    return NodePlan(steps=tuple(steps))


def _plan_strategies(observed: Observed) -> NodePlan:
    """Plan the change of machines that earlier releases created, so that they wait for a drain."""
    return NodePlan(
        tuple(
            Action(
                Patch(
                    INSTANCE,
                    each.key,
                    each.uid,
                    [{"op": "replace", "path": "/spec/evictionStrategy", "value": EVICTION}],
                    resource_version=each.version,
                ),
                Reason.APPLIED,
            )
            for _, each in sorted(observed.instances.items())
            # The API server stores the default. Any other value is the choice of a user.
            if each.eviction_strategy == _OLD_EVICTION and not each.deleting
        )
    )


def _step(kind: NodeStepKind, node: Node) -> NodeStep:
    return NodeStep(kind, node.name, node.uid)
