"""Binding: follows a machine so that its address is never routed to two places. Pure.

During a live migration, two launcher pods of the machine exist, and both or neither can be ready.
So readiness does not show where the guest runs. The VirtualMachineInstance does: the guest runs on
the source node until the migration has completed, and on the target node afterwards. So traffic is
routed to the source, and moves once. If observations are inconsistent, the address does not move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from libs.common.kinds import Key
from libs.contracts.kubevirt import VmiView
from libs.contracts.launchers import LauncherView
from operators.ipam.api.v1alpha1.claims import BindingState, ClaimReason


@dataclass(frozen=True, slots=True)
class RoutedEndpoint:
    """An endpoint to which an address routes traffic; a machine with two families has two.

    Attributes:
        node: Node of the endpoint; empty if it is unknown.
        pod: Key of the pod; None for a plain address.
    """

    address: str
    node: str = ""
    pod: Key | None = None
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """The observed or desired binding of an address.

    Attributes:
        target: Target such as `Instance/web`; empty for none.
        target_uid: UID of the target; empty if it has none.
        vmi_uid: UID of the VirtualMachineInstance; empty if the target is not a machine.
        vmi_created: Creation time of the VirtualMachineInstance, as text.
        places: Endpoints of the traffic, sorted: none, one for each family, or the endpoints of a
            Service.
    """

    target: str = ""
    target_uid: str = ""
    vmi_uid: str = ""
    vmi_created: str = ""
    places: tuple[RoutedEndpoint, ...] = ()
    epoch: int = 0

    def is_at(self, other: Binding) -> bool:
        """Return whether another binding has the same target and endpoints."""
        return replace(self, epoch=0) == replace(other, epoch=0)


class Observation(Enum):
    """The result of a search for a target."""

    FOUND = auto()
    UNKNOWN = auto()
    ABSENT = auto()


@dataclass(frozen=True, slots=True)
class Finding:
    """The location of a target.

    Attributes:
        observation: FOUND with a binding; ABSENT if it is certain that there is none; UNKNOWN if
            the address must not move.
        binding: The binding; without endpoints for ABSENT and UNKNOWN.
    """

    observation: Observation
    binding: Binding
    reason: ClaimReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class BindingPlan:
    """The target to which an address should route traffic, and the Events to emit.

    Attributes:
        again: Whether to requeue immediately, because another step follows.
    """

    binding: Binding
    state: BindingState
    reason: ClaimReason
    message: str = ""
    again: bool = False


def sort_places(places: Iterable[RoutedEndpoint]) -> tuple[RoutedEndpoint, ...]:
    """Remove duplicate places and sort them: IPv4 before IPv6, then by address."""
    return tuple(sorted(set(places), key=lambda each: (":" in each.address, each.address)))


def find_machine(
    target: Binding, vmi: VmiView | None, pods: Sequence[LauncherView], families: Collection[bool]
) -> Finding:
    """Return the location of a machine.

    Args:
        target: The target, without VirtualMachineInstance and places.
        vmi: Its VirtualMachineInstance; None if it has none.
        pods: Launcher pods of the namespace that may belong to it.
        families: Families of the addresses of the claim; True means IPv6.
    """
    # All stages of starting and stopping have the same message, so that the status of the claim is
    # not written at each stage.
    off = ClaimReason.TARGET_NOT_RUNNING
    message = f"{target.target} is not running; the address waits for it"
    if vmi is None:
        return Finding(Observation.ABSENT, target, off, message)
    run = replace(target, vmi_uid=vmi.uid, vmi_created=vmi.created)
    own = [pod for pod in pods if pod.owner_uid == vmi.uid]
    if vmi.final or (vmi.deleting and not any(pod.live for pod in own)):
        return Finding(Observation.ABSENT, run, off, message)
    if not vmi.on_pod_network:
        message = (
            f"{target.target} has no interface on the pod network, so no Service can reach it; "
            "give the address to a machine on the pod network"
        )
        return Finding(Observation.ABSENT, run, ClaimReason.NO_POD_NETWORK, message)
    if not vmi.running:
        return Finding(Observation.UNKNOWN, run, off, message)
    pod = _find_pod(vmi, own, _find_node(vmi))
    places = () if pod is None else _list_places(pod, families)
    if pod is None or not places:
        return Finding(Observation.UNKNOWN, run, off, message)
    there = replace(run, places=places)
    if vmi.migrating:
        message = f"{target.target} is migrating; the address stays on {pod.node_name} until then"
        return Finding(Observation.FOUND, there, ClaimReason.MIGRATING, message)
    return Finding(Observation.FOUND, there, ClaimReason.BOUND)


def plan_binding(current: Binding, found: Finding | None) -> BindingPlan:
    """Plan where the traffic of an address is routed."""
    if found is None:
        empty = Binding(epoch=current.epoch + bool(current.places))
        return BindingPlan(empty, BindingState.UNBOUND, ClaimReason.NO_TARGET)
    wanted = found.binding
    if current.places and _is_other_target(current, wanted):
        # Two separate writes: first stop the traffic to the old endpoint, then start the traffic to
        # the new one, so that the address is never routed to both.
        off = replace(current, places=(), epoch=current.epoch + 1)
        message = f"no longer routed to {current.target}"
        return BindingPlan(off, BindingState.MOVING, ClaimReason.MOVING, message, again=True)
    if _is_earlier_run(wanted, current):
        return _stay(
            current, found, "only an earlier run of the machine was found; the address stays"
        )
    same_run = current.vmi_uid == wanted.vmi_uid
    if found.observation is Observation.UNKNOWN and current.places and same_run:
        return _stay(current, found, found.message)
    if found.observation is Observation.FOUND:
        return BindingPlan(_count(current, wanted), BindingState.BOUND, found.reason, found.message)
    # Whether traffic was ever routed is derived from the epoch, which is stored, so that the next
    # reconcile reports the same state.
    gone = found.observation is Observation.ABSENT and current.epoch > 0
    state = BindingState.WITHDRAWN if gone else BindingState.PENDING
    # Keep the last VirtualMachineInstance, so that the address is never routed to an earlier one.
    off = replace(
        wanted,
        places=(),
        vmi_uid=wanted.vmi_uid or current.vmi_uid,
        vmi_created=wanted.vmi_created or current.vmi_created,
    )
    return BindingPlan(_count(current, off), state, found.reason, found.message)


def _find_node(vmi: VmiView) -> str:
    migration = vmi.migration
    if migration is not None and migration.under_way:
        return migration.source_node or vmi.node_name
    return vmi.node_name


def _list_places(pod: LauncherView, families: Collection[bool]) -> tuple[RoutedEndpoint, ...]:
    """Return the endpoints of a pod: at most one for each family."""
    first = {":" in address: address for address in reversed(pod.addresses)}
    return sort_places(
        RoutedEndpoint(address, pod.node_name, pod.key, pod.uid)
        for v6, address in first.items()
        if v6 in families
    )


def _find_pod(vmi: VmiView, pods: Sequence[LauncherView], node: str) -> LauncherView | None:
    candidates = [
        pod
        for pod in pods
        if pod.live
        and pod.addresses
        and pod.node_name == node
        and vmi.active_pods.get(pod.uid) == node
    ]
    if vmi.migrating:
        # The target pod of a migration can be on the node where the guest runs.
        candidates = [pod for pod in candidates if not _is_migration_target(pod, vmi)] or candidates
    return max(candidates, key=lambda pod: (pod.created, pod.uid), default=None)


def _is_migration_target(pod: LauncherView, vmi: VmiView) -> bool:
    migration = vmi.migration
    return migration is not None and bool(pod.migration) and pod.migration == migration.uid


def _is_other_target(current: Binding, wanted: Binding) -> bool:
    if current.target != wanted.target:
        return True
    known = current.target_uid and wanted.target_uid
    return bool(known) and current.target_uid != wanted.target_uid


def _is_earlier_run(wanted: Binding, current: Binding) -> bool:
    # All times of the API have the same format, so they can be compared as text.
    return (
        bool(wanted.vmi_created)
        and wanted.target == current.target
        and wanted.vmi_uid != current.vmi_uid
        and wanted.vmi_created < current.vmi_created
    )


def _stay(current: Binding, found: Finding, message: str) -> BindingPlan:
    if not current.places:
        return BindingPlan(current, BindingState.PENDING, found.reason, message)
    return BindingPlan(current, BindingState.BOUND, ClaimReason.BOUND, message)


def _count(current: Binding, wanted: Binding) -> Binding:
    epoch = current.epoch
    if current.places != wanted.places or (wanted.places and not wanted.is_at(current)):
        epoch += 1
    return replace(wanted, epoch=epoch)
