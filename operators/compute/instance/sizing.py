"""Sizing: the InstanceSize, instancetype and preference of a machine. Pure.

KubeVirt neither starts nor stops a machine whose instancetype or preference does not exist, unless
it has stored a revision of it. So a machine gets such a name only after the object exists, and
keeps its previous size until then.
"""

from __future__ import annotations

from dataclasses import dataclass

from libs.contracts.instancetypes import STARTED_WITH, Matcher, MatcherState
from libs.contracts.kubevirt import VmCondition
from operators.compute.api.instance import Instance
from operators.compute.api.instancetypes import Instancetype, SizeRef
from operators.compute.instance.observed import Capacity, Machine, Observed, Run


@dataclass(frozen=True, slots=True)
class Sizing:
    """The fields of a VirtualMachine that define its size.

    Attributes:
        capacity: CPUs and memory in its template; None with an instancetype.
        instancetype: Instancetype of the machine; None for none.
    """

    capacity: Capacity | None = None
    instancetype: Matcher | None = None


def find_sizing(instance: Instance, observed: Observed) -> Sizing | None:
    """Return the size that the machine should have: from the spec if possible, else as before."""
    wanted, machine = instance.spec.instancetype, observed.machine
    if wanted is not None and not is_instancetype_missing(instance, observed):
        return Sizing(instancetype=wanted.matcher)
    if wanted is None and observed.size is not None:
        return Sizing(observed.size)
    if machine is None:
        return None
    if machine.instancetype is not None:
        return Sizing(instancetype=machine.instancetype.matcher)
    return Sizing(machine.capacity)


def find_preference(instance: Instance, observed: Observed) -> Matcher | None:
    """Return the preference for the machine: from the spec if possible, otherwise as before."""
    wanted, machine = instance.spec.preference, observed.machine
    if wanted is None:
        return None
    if not is_preference_missing(instance, observed):
        return wanted.matcher
    held = None if machine is None else machine.preference
    return None if held is None else held.matcher


def is_instancetype_missing(instance: Instance, observed: Observed) -> bool:
    """Return whether the instancetype does not exist and KubeVirt has no revision of it."""
    wanted, machine = instance.spec.instancetype, observed.machine
    if wanted is None or observed.instancetype is not None:
        return False
    return not _is_adopted(wanted.matcher, None if machine is None else machine.instancetype)


def is_preference_missing(instance: Instance, observed: Observed) -> bool:
    """Return whether the preference does not exist and KubeVirt has no revision of it."""
    wanted, machine = instance.spec.preference, observed.machine
    if wanted is None or observed.preference_exists:
        return False
    return not _is_adopted(wanted.matcher, None if machine is None else machine.preference)


def find_current_size(instance: Instance, observed: Observed) -> SizeRef | None:
    """Return the current size of the machine; a change may take effect at its next start."""
    wanted = instance.spec.instancetype
    if wanted is None:
        size = instance.spec.size if _has_capacity(observed) else None
        return size or instance.observed.size_ref
    return wanted if _has_instancetype(wanted, observed) else instance.observed.size_ref


def _is_adopted(wanted: Matcher, held: MatcherState | None) -> bool:
    """Return whether KubeVirt has stored a revision of the wanted instancetype or preference."""
    return held is not None and held.matcher == wanted and bool(held.revision)


def _has_capacity(observed: Observed) -> bool:
    """Return whether the guest, or the machine if it is off, has the wanted InstanceSize."""
    run, machine = observed.run, observed.machine
    held = run.capacity if run is not None and not run.view.final else None
    if held is None and machine is not None and machine.instancetype is None:
        held = machine.capacity
    return held is not None and held == observed.size


def _has_instancetype(wanted: Instancetype, observed: Observed) -> bool:
    """Return whether the guest, or the machine if it is off, has the wanted instancetype."""
    run, machine = observed.run, observed.machine
    if machine is None or not _is_adopted(wanted.matcher, machine.instancetype):
        return False
    if run is None or run.view.final:
        return True
    return _runs_with(wanted.matcher, observed, machine, run)


def _runs_with(wanted: Matcher, observed: Observed, machine: Machine, run: Run) -> bool:
    """Return whether a running guest has the capacity of the instancetype of its machine.

    KubeVirt changes a running guest as far as possible. The annotation contains only the
    instancetype with which the run was started.
    """
    assert machine.instancetype is not None
    kept, view = machine.instancetype.revision, observed.instancetype
    if view is not None and view.is_kept_in(kept):
        return run.capacity == Capacity(view.cpus, view.memory)
    # The object has changed or was deleted since, and only KubeVirt knows the content of the
    # revision.
    if run.view.annotations.get(STARTED_WITH[wanted.kind]) == wanted.name:
        return True
    waits = (VmCondition.HOT_VCPU_CHANGE, VmCondition.HOT_MEMORY_CHANGE)
    pending = any(run.view.conditions.holds(each) for each in waits)
    return not pending and not machine.view.conditions.holds(VmCondition.RESTART_REQUIRED)
