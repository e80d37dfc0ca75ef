"""Causes of rebuilds of nodes, and which rebuilds can start. Pure.

A node is rebuilt because it is broken, because `spec.recycle` names it, or because its version is
older than spec.version. A node whose host is being drained is moved to another host instead, and
keeps its disk. Each cause has one Operation, so the node is rebuilt or moved only once for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from libs.contracts.compute import InstanceView, OperationView
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.health import NodeHealth, State, evaluate_all, list_broken
from operators.clusters.naming import POOL_LABEL, REBUILDS, RECYCLED, rebuild_name
from operators.clusters.observed import Observed, list_excess
from operators.clusters.resources import render_image
from operators.clusters.upgrade import is_behind, is_old, list_planes

REPLACEABLE: Final = 3
"""Minimum size of a control plane in which a node can be replaced: the others keep the data."""
MOST_REBUILDS: Final = 3
"""Maximum number of rebuilds of a broken node that does not become healthy."""

type HealthByNode = Mapping[str, NodeHealth]
"""State of nodes by name."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason to rebuild a node.

    Attributes:
        instance: Machine of the node.
        reason: `Rebuilding` for a broken node, `Recycling` for a node that `spec.recycle` names,
            `Upgrading` for a node with an old version, `Evacuating` for a node whose host is being
            drained.
        operation: Name of the Operation, which is the same for as long as the cause is the same.
        token: Token of `spec.recycle`; empty for other reasons.
    """

    instance: InstanceView
    reason: Reason
    operation: str
    token: str = ""
    type: str = "Rebuild"

    @property
    def is_move(self) -> bool:
        """Whether the machine moves to another host and keeps its disk."""
        return self.reason is Reason.EVACUATING

    @property
    def node(self) -> str:
        """Name of the node."""
        return self.instance.key.name

    @property
    def is_plane(self) -> bool:
        """Whether the node belongs to the control plane."""
        return self.instance.labels.get(POOL_LABEL) == CONTROL_PLANE

    @property
    def order(self) -> tuple[int, bool, str]:
        """Sort key: hosts and requests of users come first, then broken nodes, then upgrades."""
        ranks = {Reason.EVACUATING: 0, Reason.RECYCLING: 1, Reason.REBUILDING: 2}
        return ranks.get(self.reason, 3), not self.is_plane, self.node


def list_causes(cluster: KubernetesCluster, observed: Observed, now: datetime) -> list[Cause]:
    """Return the causes of all rebuilds in their order, including rebuilds that must wait."""
    return find_causes(cluster, observed, evaluate_all(cluster, observed, now))


def find_causes(
    cluster: KubernetesCluster, observed: Observed, node_health: HealthByNode
) -> list[Cause]:
    """Return the causes of all rebuilds in their order, for known states of the nodes."""
    nodes = {each.key.name: each for each in list_rebuildable(cluster, observed)}
    causes = {}
    for name, each in nodes.items():
        if is_old(cluster, observed, name) and not each.deleting:
            image = json.dumps(render_image(cluster, each), sort_keys=True)
            operation = rebuild_name(name, f"upgrade {each.uid} {cluster.spec.version} {image}")
            causes[name] = Cause(each, Reason.UPGRADING, operation)
    for each in list_broken(nodes.values(), node_health):
        disk = f"broken {each.uid} {each.root_disk}"
        name = rebuild_name(each.key.name, disk)
        causes[each.key.name] = Cause(each, Reason.REBUILDING, name)
    for asked in cluster.spec.recycle:
        instance = nodes.get(asked.node)
        if instance is None or instance.annotations.get(RECYCLED) == asked.token:
            continue
        name = rebuild_name(asked.node, f"recycle {instance.uid} {asked.token}")
        causes[asked.node] = Cause(instance, Reason.RECYCLING, name, asked.token)
    # A drain of a host waits for this, so it comes before everything else.
    causes |= {each.node: each for each in _list_moves(cluster, observed)}
    return sorted(causes.values(), key=lambda cause: cause.order)


def _list_moves(cluster: KubernetesCluster, observed: Observed) -> Iterator[Cause]:
    """Yield the nodes whose hosts are being drained.

    A machine that can migrate does so. Any other machine, or one whose migration has failed, shuts
    down and starts on another host.
    """
    planes = [observed.instances[name] for name in list_planes(cluster, observed)]
    for each in (*planes, *list_staying(cluster, observed)):
        if not each.evicting or each.deleting:
            continue
        ways = ["Migrate", "Reboot"] if each.migratable else ["Reboot"]
        causes = [_build_move(each, way) for way in ways]
        yield next((it for it in causes if find_finished(observed, it) is None), causes[-1])


def _build_move(instance: InstanceView, way: str) -> Cause:
    name = rebuild_name(instance.key.name, f"{way} {instance.vmi_uid} {instance.node}")
    return Cause(instance, Reason.EVACUATING, name, type=way)


def list_open(
    cluster: KubernetesCluster, observed: Observed, node_health: HealthByNode
) -> list[Cause]:
    """Return the causes without an Operation whose rebuild is within the budget."""
    causes = find_causes(cluster, observed, node_health)
    broken = list_broken(list_staying(cluster, observed), node_health)
    spare = not is_over_budget(cluster, broken)
    failed = find_failed_upgrade(observed, causes) is not None
    behind = is_behind(cluster, observed)
    joining = find_joining(cluster, observed, node_health) is not None

    def may_begin(cause: Cause) -> bool:
        if cause.is_move or is_exhausted(cause):
            return cause.is_move
        if behind and not cause.is_plane:
            # The kubelet in the image of the spec would be newer than the API server, which
            # Kubernetes does not support.
            return False
        if cause.reason is Reason.REBUILDING and cause.is_plane:
            return cluster.spec.health.max_unhealthy > 0
        if cause.reason is Reason.UPGRADING:
            return spare and not failed and (cause.is_plane or not joining)
        return bool(cause.token) or spare

    return [each for each in causes if find_finished(observed, each) is None and may_begin(each)]


def count_rebuilds(cause: Cause) -> tuple[int, str]:
    """Return how often a broken node was rebuilt since it was healthy, and the last Operation."""
    count, _, last = cause.instance.annotations.get(REBUILDS, "").partition(" ")
    return int(count) if count.isdecimal() else 0, last


def is_exhausted(cause: Cause) -> bool:
    """Return whether a broken node has had all its rebuilds, so that another one is no remedy."""
    count, last = count_rebuilds(cause)
    is_new = cause.reason is Reason.REBUILDING and last != cause.operation
    return is_new and count >= MOST_REBUILDS


def find_failed_upgrade(observed: Observed, causes: Sequence[Cause]) -> Cause | None:
    """Return a node that still has its old version although an Operation rebuilt it for an upgrade.

    The upgrade stops there, so an image with a wrong version affects only one node.
    """
    for cause in causes:
        if cause.reason is Reason.UPGRADING and find_finished(observed, cause) is not None:
            return cause
    return None


def find_joining(
    cluster: KubernetesCluster, observed: Observed, node_health: HealthByNode
) -> InstanceView | None:
    """Return a node of a pool that is starting; an upgrade of pools waits for it."""
    for each in list_staying(cluster, observed):
        name = each.key.name
        if node_health[name].state is State.PENDING and not is_old(cluster, observed, name):
            return each
    return None


def find_away(
    cluster: KubernetesCluster, observed: Observed, node_health: HealthByNode
) -> InstanceView | None:
    """Return a drained node that is not rebuilt now and is not ready again: others wait for it.

    So a broken image affects only one node, no matter how many rebuilds were requested.
    """
    going = {cause.node for cause in list_open(cluster, observed, node_health)}
    upgraded = {
        cause.node
        for cause in find_causes(cluster, observed, node_health)
        if cause.reason is Reason.UPGRADING and is_outdated(observed, cause)
    }
    for instance in list_rebuildable(cluster, observed):
        name = instance.key.name
        back = node_health[name].state is State.HEALTHY
        left = name not in going and not back and is_drained_by_us(observed, instance)
        if left or name in upgraded:
            return instance
    return None


def is_outdated(observed: Observed, cause: Cause) -> bool:
    """Return whether a Node still has its status from before a finished rebuild."""
    operation, node = find_finished(observed, cause), observed.workload.nodes.get(cause.node)
    if operation is None or not operation.succeeded:
        return False
    if node is None or not node.ready:
        return True
    started = cause.instance.ready_since
    return node.since is not None and started is not None and node.since < started


def is_over_budget(cluster: KubernetesCluster, broken: Sequence[InstanceView]) -> bool:
    """Return whether more nodes are broken than may be rebuilt."""
    return len(broken) > cluster.spec.health.max_unhealthy


def list_staying(cluster: KubernetesCluster, observed: Observed) -> list[InstanceView]:
    """Return the nodes of pools, without nodes that will be removed."""
    leaving = {each.key.name for each in list_excess(cluster, observed)}
    return [each for each in observed.workers() if each.key.name not in leaving]


def list_rebuildable(cluster: KubernetesCluster, observed: Observed) -> list[InstanceView]:
    """Return the nodes that may be rebuilt: of pools, and of control planes with 3 or 5 nodes."""
    planes = []
    if cluster.spec.control_plane.count >= REPLACEABLE:
        planes = [observed.instances[name] for name in list_planes(cluster, observed)]
    return [*planes, *list_staying(cluster, observed)]


def find_finished(observed: Observed, cause: Cause) -> OperationView | None:
    """Return the Operation of a cause if it has finished."""
    operation = observed.operations.get(cause.operation)
    return operation if operation is not None and operation.finished else None


def describe_work(operation: OperationView) -> str:
    """Describe an Operation in progress for a message."""
    verb = "rebuilds" if operation.type == "Rebuild" else "moves"
    return f"Operation {operation.key.name} {verb} {operation.instance}"


def is_at_work(observed: Observed) -> bool:
    """Return whether a node is being rebuilt."""
    return any(not operation.finished for operation in observed.operations.values())


def is_drained_by_us(observed: Observed, instance: InstanceView) -> bool:
    """Return whether the operator is draining a node."""
    node = observed.workload.nodes.get(instance.key.name)
    return node is not None and node.draining_since is not None
