"""Deletion of a KubernetesCluster. Pure.

The order is: nodes of the pools, the control plane (so that nodes always have an API server), the
Service and IPClaim (which releases the address), and Secrets last. Nodes are not drained, because
the pods are deleted together with their cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from libs.common.actions import Action
from libs.common.kinds import SECRET, Kind, Manifest, describe, is_deleting
from libs.common.plan import Delete, Step
from libs.contracts.compute import INSTANCE, OPERATION, InstanceView
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import CONTROL_PLANE, KubernetesCluster
from operators.clusters.observed import Observed, key_in


@dataclass(frozen=True, slots=True)
class Teardown:
    """The objects to delete before the finalizer of a cluster is removed.

    Attributes:
        actions: Deletions, executed concurrently.
        leftovers: Remaining objects in the order of their deletion, for the status.
    """

    actions: tuple[Action, ...] = ()
    leftovers: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return not self.leftovers

    @property
    def batch(self) -> list[Step]:
        """The deletions for `Context.execute`."""
        return [action.step for action in self.actions]


def plan_teardown(cluster: KubernetesCluster, observed: Observed) -> Teardown:
    """Plan the next deletions: all objects of the first group that is not empty."""
    groups = [
        _delete_instances(observed.workers()),
        _delete_instances(observed.members(CONTROL_PLANE)),
        [
            *_delete_operations(cluster, observed),
            *_delete_objects(observed, secrets=False),
        ],
        _delete_objects(observed, secrets=True),
    ]
    leftovers = tuple(name for group in groups for name, _ in group)
    first = next((group for group in groups if group), [])
    return Teardown(tuple(action for _, action in first if action is not None), leftovers)


type _Group = list[tuple[str, Action | None]]
"""Remaining objects, each with its deletion unless that was already requested."""


def _delete_instances(instances: Iterable[InstanceView]) -> _Group:
    group: _Group = []
    for each in instances:
        name = describe(INSTANCE, each.key)
        step = Delete(INSTANCE, each.key, each.uid)
        action = Action(step, Reason.DELETING_NODE, f"Removing node {each.key.name}")
        group.append((name, None if each.deleting else action))
    return group


def _delete_operations(cluster: KubernetesCluster, observed: Observed) -> _Group:
    group: _Group = []
    for each in observed.operations.values():
        key = key_in(cluster, each.key.name)
        action = Action(Delete(OPERATION, key, each.uid), Reason.TERMINATING)
        group.append((describe(OPERATION, key), None if each.deleting else action))
    return group


def _delete_objects(observed: Observed, *, secrets: bool) -> _Group:
    group: _Group = []
    for kind, manifest in _objects(observed, secrets=secrets):
        step = Delete.of(kind, manifest)
        action = Action(step, Reason.TERMINATING)
        group.append((describe(kind, step.key), None if is_deleting(manifest) else action))
    return group


def _objects(observed: Observed, *, secrets: bool) -> list[tuple[Kind, Manifest]]:
    return [
        (kind, manifest)
        for (kind, _), manifest in sorted(
            observed.objects.items(), key=lambda item: (item[0][0].kind, item[0][1])
        )
        if (kind == SECRET) is secrets
    ]
