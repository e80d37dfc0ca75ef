"""Slots: the numbers in the names of pods, and the pods that occupy them.

A slot is occupied if a pod with its name exists: a pod of the PodSet in any state, including
terminating, or a pod of another owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from libs.common.kinds import Manifest, is_deleting
from libs.common.ownership import controller_of
from operators.podset.naming import GROUP, SET_LABEL, pod_name

type Lookup = Callable[[str], Manifest | None]
"""Returns the pod with a name in the namespace of the PodSet, from the cache."""


@dataclass(frozen=True, slots=True)
class Slots:
    """A snapshot of the slots of one PodSet.

    Attributes:
        own: Slots that pods of the PodSet occupy, in any state.
        lookup: Returns any pod of the namespace by name.
    """

    set_name: str
    own: frozenset[int]
    expected: frozenset[str]
    lookup: Lookup

    def free(self, *, besides: Iterable[int] = (), limit: int | None = None) -> Iterator[int]:
        """Yield the free slots, the lowest first.

        Args:
            besides: Occupied slots that count as free, because the plan deletes their pods first.
            limit: Exclusive upper bound of the slots; None for no bound.
        """
        released = frozenset(besides)
        slot = 0
        while limit is None or slot < limit:
            held = slot in self.own and slot not in released
            if not held and (slot in released or self.lookup(self.name_of(slot)) is None):
                yield slot
            slot += 1

    def conflicts(self, limit: int, *, released: bool) -> list[str]:
        """Describe the pods of other owners that occupy slots below `limit`.

        Args:
            limit: Exclusive upper bound of the slots.
            released: Whether to include pods that the PodSet itself released.
        """
        found = []
        for slot in range(limit):
            if slot in self.own or self.name_of(slot) in self.expected:
                continue
            pod = self.lookup(self.name_of(slot))
            if pod is None or self._will_disappear(pod):
                continue
            if released or not self._was_ours(pod):
                found.append(f"{self.name_of(slot)} ({describe_holder(pod)})")
        return found

    def name_of(self, slot: int) -> str:
        """Return the name of the pod in a slot."""
        return pod_name(self.set_name, slot)

    def _was_ours(self, pod: Mapping[str, Any]) -> bool:
        """Return whether the PodSet created a pod and released it because its labels changed."""
        labels = pod["metadata"].get("labels") or {}
        return controller_of(pod) is None and labels.get(SET_LABEL) == self.set_name

    def _will_disappear(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod is being deleted or will be deleted by the garbage collector.

        The garbage collector deletes the pods of an earlier PodSet of the same name.
        """
        reference = controller_of(pod) or {}
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        earlier = reference.get("name") == self.set_name and group == GROUP
        return is_deleting(pod) or earlier


def describe_holder(pod: Mapping[str, Any]) -> str:
    """Describe the controller of a pod: `controlled by ReplicaSet web`."""
    reference = controller_of(pod)
    if reference is None:
        return "no controller"
    return f"controlled by {reference.get('kind')} {reference.get('name')}"
