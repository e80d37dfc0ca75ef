"""Slots: the numbers in the names of pods, and who holds them.

A slot is occupied by the pod with its name: one of ours in any state, including a terminating one,
or somebody else's pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from libs.common.kinds import Manifest, is_deleting
from libs.common.ownership import controller_of
from operators.podset.naming import GROUP, SET_LABEL, pod_name

type Lookup = Callable[[str], Manifest | None]
"""Return the pod of a name in the namespace of the set, as the cache has it."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Know the slots of one set, in one snapshot.

    Attributes:
        set_name: Name of the set.
        own: Slots that pods of the set hold, in whatever state these are.
        expected: Names of orphans that are about to be adopted.
        lookup: Finds any pod of the namespace by name.
    """

    set_name: str
    own: frozenset[int]
    expected: frozenset[str]
    lookup: Lookup

    def free(self, *, besides: Iterable[int] = (), limit: int | None = None) -> Iterator[int]:
        """Yield the slots that nobody holds, the lowest first.

        Args:
            besides: Slots that are held now and will be free, or are promised already.
            limit: First number that is out of bounds; None for no bound.
        """
        released = frozenset(besides)
        slot = 0
        while limit is None or slot < limit:
            held = slot in self.own and slot not in released
            if not held and (slot in released or self.lookup(self.name_of(slot)) is None):
                yield slot
            slot += 1

    def conflicts(self, limit: int, *, released: bool) -> list[str]:
        """Return, in words, the pods of others that hold slots below `limit`.

        Args:
            limit: First slot that is of no interest.
            released: Whether pods count that the set itself let go.
        """
        found = []
        for slot in range(limit):
            if slot in self.own or self.name_of(slot) in self.expected:
                continue
            pod = self.lookup(self.name_of(slot))
            if pod is None or self._is_leaving(pod):
                continue
            if released or not self._was_ours(pod):
                found.append(f"{self.name_of(slot)} ({describe_holder(pod)})")
        return found

    def name_of(self, slot: int) -> str:
        """Return the name of the pod in a slot."""
        return pod_name(self.set_name, slot)

    def _was_ours(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod is one that the set made, and let go since a label was changed."""
        labels = pod["metadata"].get("labels") or {}
        return controller_of(pod) is None and labels.get(SET_LABEL) == self.set_name

    def _is_leaving(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod will be gone without anybody's help.

        Pods of an earlier set of the same name are left to the garbage collector.
        """
        reference = controller_of(pod) or {}
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        earlier = reference.get("name") == self.set_name and group == GROUP
        return is_deleting(pod) or earlier


def describe_holder(pod: Mapping[str, Any]) -> str:
    """Say whose a pod is: `of ReplicaSet web`."""
    reference = controller_of(pod)
    if reference is None:
        return "of nobody"
    return f"of {reference.get('kind')} {reference.get('name')}"
