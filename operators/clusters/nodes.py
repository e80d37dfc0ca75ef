"""Which nodes are drained, removed, rebuilt, and given back; pure.

A node of a pool that shrank is drained and goes. A broken one, or one that `spec.recycle` names, is
drained and rebuilt by an Operation. In both cases the node says itself how far it is: cordoned with
our mark, then without pods, then gone or rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from libs.common.actions import Action
from libs.common.contracts.compute import INSTANCE, OPERATION, InstanceView, OperationView
from libs.common.plan import Create, Delete, Patch
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.health import State, Verdict, judge_all, list_broken, next_look
from operators.clusters.naming import RECYCLED, rebuild_name
from operators.clusters.observed import (
    Node,
    Observed,
    drain_seconds,
    is_node_of,
    list_excess,
)
from operators.clusters.resources import build_rebuild

_LOOK_AT_DRAIN: Final = 3.0
"""Seconds until another look at a node whose pods are leaving."""


class NodeStepKind(StrEnum):
    """NodeStepKind says what is done to a Node in its own cluster."""

    CORDON = "Cordon"
    EVICT = "Evict"
    UNCORDON = "Uncordon"
    REMOVE = "Remove"


@dataclass(frozen=True, slots=True)
class NodeStep:
    """One thing to do to a Node in its own cluster; each is safe to repeat.

    Attributes:
        kind: What is done.
        node: Name of the Node.
        uid: Which incarnation is meant.
    """

    kind: NodeStepKind
    node: str
    uid: str

    def __str__(self) -> str:
        """Render for logs: `cordon Node edge-web-0`."""
        return f"{self.kind.lower()} Node {self.node}"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Say what is to be done to nodes.

    Attributes:
        actions: Writes where the Instances are.
        steps: What is done where the Nodes are.
        seconds: When to look again; None for no such need.
    """

    actions: tuple[Action, ...] = ()
    steps: tuple[NodeStep, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """Say why a node is to be rebuilt.

    Attributes:
        instance: Its machine.
        reason: `Rebuilding` for a broken one, `Recycling` for one that is asked for.
        operation: Name of the Operation; the same for as long as the cause is the same.
        token: Token of `spec.recycle`; empty for a broken one.
    """

    instance: InstanceView
    reason: Reason
    operation: str
    token: str = ""


def plan_nodes(cluster: KubernetesCluster, observed: Observed, now: datetime) -> NodePlan:
    """Decide what is done to nodes that are there."""
    verdicts = judge_all(cluster, observed, now)
    removal = _plan_removals(cluster, observed, now)
    rebuild = _plan_rebuilds(cluster, observed, verdicts, now)
    plans = [removal, rebuild, _plan_gone(cluster, observed)]
    looks = [plan.seconds for plan in plans if plan.seconds is not None]
    if (look := next_look(verdicts.values())) is not None:
        looks.append(look)
    return NodePlan(
        tuple(action for plan in plans for action in plan.actions),
        tuple(step for plan in plans for step in plan.steps),
        min(looks, default=None),
    )


def look_again(seconds: float | None, *, poll: float | None, refused: bool) -> float | None:
    """Return the seconds until the next pass; None for no such need.

    Args:
        seconds: What the plan wishes; None for nothing.
        poll: How often the API of the cluster is asked; None while there is none to ask.
        refused: Whether that API refused a step: the plan would have it asked for again at once.
    """
    wishes = [each for each in (seconds, poll) if each is not None]
    return poll if refused and poll is not None else min(wishes, default=None)


def list_causes(cluster: KubernetesCluster, observed: Observed, now: datetime) -> list[Cause]:
    """List what asks for a rebuild, what is asked for by people first."""
    verdicts = judge_all(cluster, observed, now)
    return _list_causes(cluster, observed, verdicts)


def is_over_budget(cluster: KubernetesCluster, broken: Sequence[InstanceView]) -> bool:
    """Tell whether more nodes are broken than may be rebuilt."""
    return len(broken) > cluster.spec.health.max_unhealthy


def list_staying(cluster: KubernetesCluster, observed: Observed) -> list[InstanceView]:
    """List the nodes of pools that are to stay."""
    leaving = {each.key.name for each in list_excess(cluster, observed)}
    return [each for each in observed.workers() if each.key.name not in leaving]


def find_away(
    cluster: KubernetesCluster, observed: Observed, verdicts: dict[str, Verdict]
) -> InstanceView | None:
    """Find a node that was drained, is not to be rebuilt now, and is not back: others wait for it.

    An image that makes no node costs one node so, whoever asked for how many rebuilds.
    """
    going = {cause.instance.key.name for cause in _list_open(cluster, observed, verdicts)}
    for instance in list_staying(cluster, observed):
        name = instance.key.name
        back = verdicts[name].state is State.HEALTHY
        if name not in going and not back and _is_drained_by_us(observed, instance):
            return instance
    return None


def _list_causes(
    cluster: KubernetesCluster, observed: Observed, verdicts: dict[str, Verdict]
) -> list[Cause]:
    staying = {each.key.name: each for each in list_staying(cluster, observed)}
    causes = {}
    for each in list_broken(staying.values(), verdicts):
        disk = f"broken {each.uid} {each.root_disk}"
        name = rebuild_name(each.key.name, disk)
        causes[each.key.name] = Cause(each, Reason.REBUILDING, name)
    for asked in cluster.spec.recycle:
        instance = staying.get(asked.node)
        if instance is None or instance.annotations.get(RECYCLED) == asked.token:
            continue
        name = rebuild_name(asked.node, f"recycle {instance.uid} {asked.token}")
        causes[asked.node] = Cause(instance, Reason.RECYCLING, name, asked.token)
    return sorted(causes.values(), key=lambda cause: (not cause.token, cause.operation))


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
    """Decide what brings a node closer to having no pods; None once it has none to wait for."""
    limit = drain_seconds(cluster, instance)
    if limit == 0:
        return None
    if not observed.workload.reachable:
        return NodePlan()
    node = observed.workload.nodes.get(instance.key.name)
    if node is None:
        return None
    if node.draining_since is None or not node.cordoned:
        return NodePlan(steps=(_step(NodeStepKind.CORDON, node),), seconds=0.1)
    spent = (now - node.draining_since).total_seconds()
    if node.pods_left == 0 or spent >= limit:
        return None
    return NodePlan(steps=(_step(NodeStepKind.EVICT, node),), seconds=_LOOK_AT_DRAIN)


def _plan_rebuilds(
    cluster: KubernetesCluster, observed: Observed, verdicts: dict[str, Verdict], now: datetime
) -> NodePlan:
    causes = _list_causes(cluster, observed, verdicts)
    actions = list(_record(observed, causes))
    needed = {cause.instance.key.name for cause in causes}
    steps = tuple(_give_back(cluster, observed, needed, verdicts))
    open_ = _list_open(cluster, observed, verdicts)
    if not open_ or _is_at_work(observed):
        return NodePlan(tuple(actions), steps)
    # One that was begun is finished before the next.
    cause = min(open_, key=lambda each: not _is_drained_by_us(observed, each.instance))
    if cause.instance.key.name in observed.busy or not observed.workload.reachable:
        return NodePlan(tuple(actions), steps)
    if find_away(cluster, observed, verdicts) is not None:
        return NodePlan(tuple(actions), steps)
    drain = _plan_drain(cluster, observed, cause.instance, now)
    if drain is not None:
        return NodePlan((*actions, *drain.actions), (*steps, *drain.steps), drain.seconds)
    step = Create(OPERATION, build_rebuild(cluster, cause.operation, cause.instance))
    note = f"Rebuilding node {cause.instance.key.name}"
    warning = cause.reason is Reason.REBUILDING
    return NodePlan((*actions, Action(step, cause.reason, note, warning)), steps)


def _list_open(
    cluster: KubernetesCluster, observed: Observed, verdicts: dict[str, Verdict]
) -> list[Cause]:
    """List the causes that nothing was done for yet, as far as the budget goes."""
    broken = list_broken(list_staying(cluster, observed), verdicts)
    spare = not is_over_budget(cluster, broken)
    return [
        cause
        for cause in _list_causes(cluster, observed, verdicts)
        if not _finished(observed, cause) and (cause.token or spare)
    ]


def _record(observed: Observed, causes: Iterable[Cause]) -> Iterable[Action]:
    """Write down which rebuilds that people asked for have been carried out."""
    for cause in causes:
        operation = _finished(observed, cause)
        if operation is None or not cause.token:
            continue
        instance = cause.instance
        notes = {**instance.annotations, RECYCLED: cause.token}
        patch = [{"op": "add", "path": "/metadata/annotations", "value": notes}]
        step = Patch(INSTANCE, instance.key, instance.uid, patch, resource_version=instance.version)
        name = instance.key.name
        note = f"Rebuilt node {name}" if operation.succeeded else f"Could not rebuild node {name}"
        yield Action(step, Reason.RECYCLED, note, warning=not operation.succeeded)


def _give_back(
    cluster: KubernetesCluster,
    observed: Observed,
    needed: set[str],
    verdicts: dict[str, Verdict],
) -> Iterable[NodeStep]:
    """Let nodes that were drained and are to stay take pods again, once they are ready."""
    for instance in list_staying(cluster, observed):
        name = instance.key.name
        node = observed.workload.nodes.get(name)
        ours = node is not None and node.draining_since is not None
        at_work = name in needed or name in observed.busy
        if node is not None and ours and not at_work and verdicts[name].state is State.HEALTHY:
            yield _step(NodeStepKind.UNCORDON, node)


def _plan_gone(cluster: KubernetesCluster, observed: Observed) -> NodePlan:
    """Decide which Nodes have no machine any more."""
    return NodePlan(
        steps=tuple(
            _step(NodeStepKind.REMOVE, node)
            for name, node in sorted(observed.workload.nodes.items())
            if name not in observed.instances and is_node_of(cluster, node)
        )
    )


def _finished(observed: Observed, cause: Cause) -> OperationView | None:
    operation = observed.operations.get(cause.operation)
    return operation if operation is not None and operation.finished else None


def _is_at_work(observed: Observed) -> bool:
    return any(not operation.finished for operation in observed.operations.values())


def _is_drained_by_us(observed: Observed, instance: InstanceView) -> bool:
    node = observed.workload.nodes.get(instance.key.name)
    return node is not None and node.draining_since is not None


def _step(kind: NodeStepKind, node: Node) -> NodeStep:
    return NodeStep(kind, node.name, node.uid)
