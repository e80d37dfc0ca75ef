"""Deletion of a KubernetesCluster. Pure.

The order is: nodes of the pools with the addresses of Services, the control plane (so that nodes
always have an API server) with the endpoints of the API, its Service and IPClaim (which releases
the address), and Secrets last. Nodes are not drained, because the pods are deleted together with
their cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from libs.common.actions import Action
from libs.common.kinds import (
    ENDPOINT_SLICE,
    SECRET,
    Key,
    Kind,
    Manifest,
    describe,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.plan import Delete
from libs.common.reading import text_at
from libs.contracts.compute import INSTANCE, OPERATION, InstanceView
from operators.clusters.api.reasons import Reason
from operators.clusters.api.v1alpha1 import CONTROL_PLANE
from operators.clusters.naming import GUEST_SERVICE
from operators.clusters.observed import Observed


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


def plan_teardown(observed: Observed) -> Teardown:
    """Plan the next deletions: all objects of the first group that is not empty."""
    groups: list[_Group] = [
        _delete_instances(observed.workers()),
        _delete_instances(observed.members(CONTROL_PLANE)),
        [
            _delete(OPERATION, each.key, each.uid, each.deleting)
            for each in observed.operations.values()
        ],
        [],
    ]
    for (kind, _), held in sorted(
        observed.objects.items(), key=lambda item: (item[0][0].kind, item[0][1])
    ):
        deletion = _delete(kind, key_of(held), uid_of(held), is_deleting(held))
        groups[_find_group(kind, held)].append(deletion)
    leftovers = tuple(name for group in groups for name, _ in group)
    first = next((group for group in groups if group), [])
    return Teardown(tuple(action for _, action in first if action is not None), leftovers)


def _find_group(kind: Kind, held: Manifest) -> int:
    """Return the group of an object: an address leads to no machine that may be gone.

    Somebody else may get the address that a machine had.
    """
    if text_at(held, "metadata", "annotations", GUEST_SERVICE):
        return 0
    if kind == ENDPOINT_SLICE:
        return 1
    return 3 if kind == SECRET else 2


type _Group = list[tuple[str, Action | None]]
"""Remaining objects, each with its deletion unless that was already requested."""


def _delete_instances(instances: Iterable[InstanceView]) -> _Group:
    return [
        _delete(INSTANCE, each.key, each.uid, each.deleting, f"Removing node {each.key.name}")
        for each in instances
    ]


def _delete(
    kind: Kind, key: Key, uid: str, is_requested: bool, note: str = ""
) -> tuple[str, Action | None]:
    reason = Reason.DELETING_NODE if note else Reason.TERMINATING
    action = Action(Delete(kind, key, uid), reason, note)
    return describe(kind, key), None if is_requested else action
